"""Export configurations of Optimum Neuron, for scripts that look architectures up or describe one.

An export does not need them here: inputs and outputs are read from the model. They say, through optimum's
`TasksManager`, for which tasks an architecture was compared with transformers.

    >>> from optimum.exporters.tasks import TasksManager
    >>> from optimum.exporters.neuron.model_configs import *
    >>> "fill-mask" in TasksManager.get_supported_tasks_for_model_type("bert", "neuron", library_name="transformers")
    True
"""

from __future__ import annotations

from typing import Any

from optimum.exporters.tasks import TasksManager
from optimum.neuron._log import logger

from optimum_neuron.exporters import COMPARED, read_support

register_in_tasks_manager = TasksManager.create_register("neuron")


class NeuronExportConfig:
    """What a script knows of an architecture for one task.

    Args:
        config: transformers configuration of the model.
        task: name of a task.
        **shapes: static shapes by their axis, such as `batch_size`.
    """

    ATOL_FOR_VALIDATION: float | None = None
    """Tolerance that a script passes to `main_export(atol=)`; None: chosen for the dtype."""
    MANDATORY_AXES: tuple[Any, ...] = ()
    """Axes that have a compiled size; a pair is of one task."""

    def __init__(self, config: Any, task: str = "feature-extraction", **shapes: Any) -> None:
        self.config, self.task, self.shapes = config, task, shapes

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__ != __name__:
            logger.info("%s changes no export: inputs and outputs are read from the model.", cls.__name__)


class NeuronDefaultConfig(NeuronExportConfig):
    """Base of the classes for each kind of input."""


class TextEncoderNeuronConfig(NeuronDefaultConfig):
    """Text in one pass."""

    MANDATORY_AXES = ("batch_size", "sequence_length", ("multiple-choice", "num_choices"))


class VisionNeuronConfig(NeuronDefaultConfig):
    """Images."""

    MANDATORY_AXES = ("batch_size", "num_channels", "width", "height")


class TextAndVisionNeuronConfig(NeuronDefaultConfig):
    """Texts and images."""

    MANDATORY_AXES = ("batch_size", "sequence_length", "num_channels", "width", "height")


class AudioNeuronConfig(NeuronDefaultConfig):
    """Recordings."""

    MANDATORY_AXES = ("batch_size", "audio_sequence_length")


class TextSeq2SeqNeuronConfig(NeuronDefaultConfig):
    """Texts to texts."""

    MANDATORY_AXES = ("batch_size", "sequence_length", "num_beams")


_OF_INPUT = {"audio": AudioNeuronConfig, "automatic": AudioNeuronConfig, "text2text": TextSeq2SeqNeuronConfig}
"""Class of a task by the first word of its name, where it is not about text or images."""


def _class_of(task: str) -> type[NeuronDefaultConfig]:
    of_images = VisionNeuronConfig if any(word in task for word in ("image", "object", "depth", "semantic")) else None
    if "text" in task and of_images is not None:
        return TextAndVisionNeuronConfig
    return _OF_INPUT.get(task.partition("-")[0]) or of_images or TextEncoderNeuronConfig


def register_architectures() -> None:
    """Tell optimum's `TasksManager` which architectures were compared with transformers, and for which tasks."""
    known = set(TasksManager.get_all_tasks())
    for model_type, outcomes in read_support().items():
        for task, outcome in outcomes.items():
            if outcome == COMPARED and task in known:
                register_in_tasks_manager(model_type, task)(_class_of(task))
