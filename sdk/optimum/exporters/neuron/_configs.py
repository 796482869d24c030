"""Export configurations of Optimum Neuron, for scripts that look architectures up or describe one.

`main_export` does not need them: inputs and outputs are read from the model. They say, through optimum's
`TasksManager`, for which tasks an architecture was compared with transformers, and `export` takes shapes from them.

    >>> from optimum.exporters.tasks import TasksManager
    >>> from optimum.exporters.neuron.model_configs import *
    >>> "fill-mask" in TasksManager.get_supported_tasks_for_model_type("bert", "neuron", library_name="transformers")
    True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimum.exporters.tasks import TasksManager
from optimum.neuron._log import logger

from optimum_neuron.sources import COMPARED, read_support

register_in_tasks_manager = TasksManager.create_register("neuron")

DEFAULT_TOLERANCE = 1e-3
"""Largest absolute difference of a validation where a configuration has none."""


class NeuronExportConfig:
    """What a script knows of an architecture for one task.

    Args:
        config: transformers configuration of the model.
        task: name of a task.
        input_shapes: static shapes, as a mapping or as `InputShapesArguments`.
        dynamic_batch_size: compile for a batch size of 1 too.
        output_attentions: return attention weights too.
        output_hidden_states: return every layer's hidden states too.
        **shapes: static shapes by their axis, such as `batch_size`.
    """

    ATOL_FOR_VALIDATION: float | dict[str, float] | None = None
    """Tolerance of a validation, or one for each task; None: it is chosen."""
    INPUT_ARGS: tuple[Any, ...] = ()
    """Axes that have a compiled size; a pair is of one task, or of several."""

    def __init__(
        self,
        config: Any,
        task: str = "feature-extraction",
        input_shapes: Any = None,
        *,
        dynamic_batch_size: bool = False,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        **shapes: Any,
    ) -> None:
        self.config, self.task = config, task
        given = input_shapes if input_shapes is None or isinstance(input_shapes, Mapping) else vars(input_shapes)
        named = {name: value for name, value in (given or {}).items() if value is not None}
        self.shapes: dict[str, Any] = {**named, **shapes}
        self.dynamic_batch_size = dynamic_batch_size
        self.output_attentions, self.output_hidden_states = output_attentions, output_hidden_states

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__ != __name__:
            logger.info("%s changes no export: inputs and outputs are read from the model.", cls.__name__)

    @classmethod
    def get_mandatory_axes_for_task(cls, task: str) -> tuple[str, ...]:
        """Return the axes that have a compiled size.

        Args:
            task: name of a task.
        """
        axes = []
        for axis in cls.INPUT_ARGS:
            tasks, name = axis if isinstance(axis, tuple) else (task, axis)
            if task in (tasks if isinstance(tasks, tuple) else (tasks,)):
                axes.append(name)
        return tuple(axes)

    get_input_args_for_task = get_mandatory_axes_for_task

    @property
    def mandatory_axes(self) -> tuple[str, ...]:
        """Axes that have a compiled size."""
        return self.get_mandatory_axes_for_task(self.task)

    def __getattr__(self, name: str) -> Any:
        shapes = vars(self).get("shapes", {})
        if name in shapes or name in self.mandatory_axes:
            return shapes.get(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def sizes(self) -> dict[str, Any]:
        """Return the options of an export; the size of images is the model's where that has one."""
        vision = getattr(self.config, "vision_config", self.config)
        is_fixed = getattr(vision, "image_size", None) is not None
        axes = [axis for axis in self.mandatory_axes if not (is_fixed and axis in ("height", "width"))]
        flags = ("dynamic_batch_size", "output_attentions", "output_hidden_states")
        sizes = {axis: self.shapes[axis] for axis in axes if self.shapes.get(axis) is not None}
        return {**sizes, **{name: True for name in flags if getattr(self, name)}}

    def tolerance(self) -> float:
        """Return the tolerance of a validation."""
        value = self.ATOL_FOR_VALIDATION
        value = value.get(self.task) if isinstance(value, dict) else value
        return DEFAULT_TOLERANCE if value is None else value


class NeuronDefaultConfig(NeuronExportConfig):
    """Base of the classes for each kind of input."""


class TextEncoderNeuronConfig(NeuronDefaultConfig):
    """Text in one pass."""

    INPUT_ARGS = ("batch_size", "sequence_length", ("multiple-choice", "num_choices"))


class VisionNeuronConfig(NeuronDefaultConfig):
    """Images."""

    INPUT_ARGS = ("batch_size", "num_channels", "width", "height")


class TextAndVisionNeuronConfig(NeuronDefaultConfig):
    """Texts and images."""

    INPUT_ARGS = ("text_batch_size", "image_batch_size", "sequence_length", "num_channels", "width", "height")


class AudioNeuronConfig(NeuronDefaultConfig):
    """Recordings."""

    INPUT_ARGS = ("batch_size", "audio_sequence_length")


class TextSeq2SeqNeuronConfig(NeuronDefaultConfig):
    """Texts to texts."""

    INPUT_ARGS = ("batch_size", "sequence_length", "num_beams")


_OF_INPUT = {"audio": AudioNeuronConfig, "automatic": AudioNeuronConfig, "text2text": TextSeq2SeqNeuronConfig}
"""Class of a task by the first word of its name, where it is not about text or images."""


def _class_of(task: str, others: list[str]) -> type[NeuronDefaultConfig]:
    """The class of a task; features are of what an architecture's other tasks are about."""
    of_images = VisionNeuronConfig if any(word in task for word in ("image", "object", "depth", "semantic")) else None
    if "text" in task and of_images is not None:
        return TextAndVisionNeuronConfig
    if task == "feature-extraction" and others:
        return _class_of(others[0], [])
    return _OF_INPUT.get(task.partition("-")[0]) or of_images or TextEncoderNeuronConfig


_OF_DECODERS = ("text-generation", "image-text-to-text", "any-to-any")
"""Tasks of models whose shapes are in a `NeuronConfig`."""

_SENTENCES = {"transformer": TextEncoderNeuronConfig, "clip": TextAndVisionNeuronConfig}
"""Kinds of sentence-transformers models."""


def register_architectures() -> None:
    """Tell optimum's `TasksManager` which architectures were compared with transformers, and for which tasks."""
    known = set(TasksManager.get_all_tasks()) - set(_OF_DECODERS)
    for model_type, outcomes in read_support().items():
        tasks = [task for task, outcome in outcomes.items() if outcome == COMPARED and task in known]
        for task in tasks:
            others = [other for other in tasks if other != "feature-extraction"]
            register_in_tasks_manager(model_type, task)(_class_of(task, others))
    for kind, config_class in _SENTENCES.items():
        register_in_tasks_manager(
            kind, "feature-extraction", "sentence-similarity", library_name="sentence_transformers"
        )(config_class)
