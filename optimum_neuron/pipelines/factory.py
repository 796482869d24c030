"""`pipeline`: find or export the model of a task and its processors, and make transformers' pipeline of them.

transformers' own `pipeline(task, model=neuron_model, tokenizer=...)` works as well; this one finds the model and its
processors itself.
"""

from __future__ import annotations

import difflib
import importlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.foreign import tokenizer_facts
from ..base.transformers_types import PreTrainedTokenizerBase
from ..errors import ConfigError, ModelError
from ..options.option import SOURCE_OPTIONS, check_known, source_options
from ..sources import Task, find_task, kinds_of_task
from .names import ALIASES, TEXT_TO_TEXT, plain_name, task_of_pipeline

if TYPE_CHECKING:
    from transformers import Pipeline

    from ..modeling import NeuronModel

logger = logging.getLogger(__name__)

DEFAULT_MODELS = {"text-generation": "smollm2"}

_AUTO = {
    "tokenizer": "AutoTokenizer",
    "image_processor": "AutoImageProcessor",
    "feature_extractor": "AutoFeatureExtractor",
    "processor": "AutoProcessor",
}
"""Argument of transformers' pipeline to the class that loads it."""

_NEEDS = {
    "image-classification": ("image_processor",),
    "image-feature-extraction": ("image_processor",),
    "image-segmentation": ("image_processor",),
    "object-detection": ("image_processor",),
    "depth-estimation": ("image_processor",),
    "zero-shot-image-classification": ("tokenizer", "image_processor"),
    "audio-classification": ("feature_extractor",),
    "automatic-speech-recognition": ("tokenizer", "feature_extractor"),
    "image-text-to-text": ("processor",),
    "any-to-any": ("processor",),
}
"""Processors that a pipeline needs besides the model; a tokenizer by default."""


def pipeline(
    task: str,
    model: str | Path | NeuronModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    image_processor: object = None,
    feature_extractor: object = None,
    processor: object = None,
    export: bool | None = None,
    input_shapes: Mapping[str, int] | None = None,
    compiler_args: Mapping[str, Any] | None = None,
    use_fast: bool | None = None,
    **options: object,
) -> Pipeline:
    """Build a transformers pipeline on a compiled model.

    Args:
        task: a pipeline of transformers for a task that can be exported, or "question-answering",
            "text2text-generation", "summarization", "translation", "translation_en_to_de" and the like.
        model: exported folder, checkpoint, name, or a loaded model; None takes the task's default.
        tokenizer: tokenizer or its path; None takes the model's.
        image_processor: image processor or its path; None takes the model's, set to the compiled size.
        feature_extractor: feature extractor or its path; None takes the model's.
        processor: processor of images and text, or its path; None takes the model's.
        export: True exports a checkpoint, False requires an exported folder, None chooses by the folder.
        input_shapes: shapes of the export, such as `batch_size`, in one mapping.
        compiler_args: `auto_cast`, `auto_cast_type` and `optlevel` of the export, in one mapping.
        use_fast: changes nothing: transformers 5 has one tokenizer for each model.
        **options: keywords of `from_pretrained` such as `batch_size` and `sequence_length`; all others go to
            transformers' pipeline.

    Raises:
        ConfigError: an option is given twice, or unknown.
        ModelError: the task is unknown, or there is no tokenizer or processor.
        NeuronError: the model cannot be exported or loaded.
    """
    from ..exporters import OF_GENERATION, PEER_OPTIONS
    from ..kinds import compile_options
    from ..modeling import CHECKPOINT_OPTIONS, LOAD_OPTIONS, NeuronModel

    name = ALIASES.get(task, task)
    served = task_of_pipeline(name)
    of_loading = (*SOURCE_OPTIONS, *CHECKPOINT_OPTIONS, *LOAD_OPTIONS, *PEER_OPTIONS, "data_parallel_mode")
    known = tuple(option for option in (*compile_options(), *of_loading) if option not in OF_GENERATION)
    if use_fast is not None:
        logger.info("use_fast=%r changes nothing: transformers 5 has one tokenizer for each model.", use_fast)
    options = _merged(options, {"input_shapes": input_shapes, "compiler_args": compiler_args}, known)
    loading = {key: options.pop(key) for key in known if key in options}
    _refuse_mistyped(options, known)
    if isinstance(model, NeuronModel):
        loaded = model
        options |= _for_a_loaded_model(loading)
        _require_task(name, served, loaded)
    else:
        loaded = _loaded(served, _named(name, model), export, loading)
    processors = {
        "tokenizer": tokenizer,
        "image_processor": image_processor,
        "feature_extractor": feature_extractor,
        "processor": processor,
    }
    return _assembled(name, loaded, _parts(name, loaded, processors), options)


def _loaded(served: Task, path: str | Path, export: bool | None, loading: dict[str, Any]) -> NeuronModel:
    """The model of a path; it is looked at first where models of two kinds serve the task."""
    from .. import modeling
    from ..sources import load_source

    if len(kinds_of_task(served.name)) > 1:
        served = find_task(served.name, load_source(path, **source_options(loading)).config.model_type)
    model: NeuronModel = getattr(modeling, served.model_class).from_pretrained(path, export=export, **loading)
    return model


def _merged(
    options: dict[str, Any], groups: Mapping[str, Mapping[str, Any] | None], known: Sequence[str]
) -> dict[str, Any]:
    """Options and groups of options as one mapping; none may be unknown or given twice."""
    merged = dict(options)
    for group, values in groups.items():
        check_known(dict(values or {}), list(known), what=group)
        twice = sorted(merged.keys() & (values or {}).keys())
        if twice:
            message = f"{', '.join(twice)} is given in {group} and outside of it."
            raise ConfigError(message, hint="Pass it once.", group=group, options=twice)
        merged |= values or {}
    return merged


def _refuse_mistyped(options: dict[str, Any], known: Sequence[str]) -> None:
    """Reject options that resemble one of `from_pretrained`: a pipeline takes any keyword and may ignore it."""
    near = {key: difflib.get_close_matches(key, known, n=1, cutoff=0.9) for key in options}
    if mistyped := [key for key, names in near.items() if names]:
        listed = " ".join(f"{key}, did you mean {near[key][0]!r}?" for key in mistyped)
        message = f"The pipeline has no option {listed}"
        raise ConfigError(message, hint="Correct the spelling.", options=mistyped)


def _parts(name: str, model: NeuronModel, processors: dict[str, Any]) -> dict[str, Any]:
    """Return the tokenizer and processors; missing ones come from the model's folder."""
    from ..modeling import load_preprocessor

    parts = {kind: part for kind, part in processors.items() if part is not None}
    if "image_processor" in _NEEDS.get(name, ()) and "feature_extractor" in parts:
        _take_for_images(name, parts)
    for kind in _NEEDS.get(name, ("tokenizer",)):
        part = parts.get(kind)
        if part is None or isinstance(part, (str, Path)):
            folder = Path(part) if part else model.source_folder
            parts[kind] = load_preprocessor(_AUTO[kind], folder, hint=f"Pass {kind}=.")
            if part is None:
                _fit(parts[kind], model)
    return parts


def _take_for_images(name: str, parts: dict[str, Any]) -> None:
    """Use `feature_extractor` as the image processor, as transformers does: image processors once had that name."""
    from transformers.image_processing_utils import BaseImageProcessor

    part = parts.pop("feature_extractor")
    if "image_processor" in parts or not isinstance(part, (str, Path, BaseImageProcessor)):
        message = f"The pipeline {name!r} reads images, so it takes image_processor=, not feature_extractor=."
        kind = type(part).__name__
        raise ConfigError(message, hint="Pass the image processor only.", task=name, feature_extractor=kind)
    parts["image_processor"] = part


def _assembled(name: str, model: NeuronModel, parts: dict[str, Any], options: dict[str, Any]) -> Pipeline:
    """transformers' pipeline, or one of this package where transformers has none."""
    import transformers

    if name == "question-answering":
        return pipeline_class(name)(model=model, **parts, **options)
    if plain_name(name) in TEXT_TO_TEXT:
        return pipeline_class(name)(model=model, task=name, **parts, **options)
    if name == "feature-extraction" and hasattr(model, "recipe"):  # of sentences
        from .sentences import SentencePipeline

        options = {"pipeline_class": SentencePipeline, **options}
    if "feature_extractor" in parts:
        from . import recordings

        recordings.require_rate(parts["feature_extractor"], model)
        options = {"pipeline_class": pipeline_class(name), **options}
    return transformers.pipeline(name, model=model, **parts, **options)


def pipeline_class(name: str) -> type[Pipeline]:
    """Return the class of a pipeline: transformers', or that of this package where it differs.

    Raises:
        ModelError: there is no such pipeline.
    """
    from transformers.pipelines import SUPPORTED_TASKS

    from . import recordings
    from .question_answering import QuestionAnsweringPipeline
    from .text_to_text import TextToTextPipeline

    name = plain_name(ALIASES.get(name, name))
    own = {"question-answering": QuestionAnsweringPipeline, **dict.fromkeys(TEXT_TO_TEXT, TextToTextPipeline)}
    own |= recordings.PIPELINES
    task_of_pipeline(name)
    if name in own:
        return own[name]
    module, _, attribute = str(SUPPORTED_TASKS[name]["impl"]).rpartition(".")  # a path, so that the table is light
    found: type[Pipeline] = getattr(importlib.import_module(module), attribute)
    return found


def _named(name: str, model: str | Path | None) -> str | Path:
    if model is not None:
        return model
    if name in DEFAULT_MODELS:
        return DEFAULT_MODELS[name]
    message = f"The pipeline {name!r} has no default model."
    raise ModelError(message, hint=f"Pass model=; only {', '.join(DEFAULT_MODELS)} has a default.", task=name)


def _for_a_loaded_model(loading: dict[str, Any]) -> dict[str, Any]:
    """`batch_size` is an option of transformers' pipelines too; the others come too late."""
    late = [key for key in loading if key != "batch_size"]
    if late:
        message = f"{', '.join(late)} cannot change a model that is already compiled and loaded."
        raise ConfigError(message, hint="Leave the options out, or pass the model's path.", options=late)
    return loading


def _require_task(name: str, served: Task, model: NeuronModel) -> None:
    task = model.neuron_config.task
    if task != served.name:
        given = f"this {type(model).__name__} is for {task}"
        message = f"The pipeline {name!r} needs a {served.model_class}, but {given}."
        hint = f"Pass a model that was exported for {served.name}."
        raise ModelError(message, hint=hint, task=served.name, model_task=task)


def _fit(part: Any, model: NeuronModel) -> None:
    """Tell a processor of the model's own folder the compiled sizes, where it would make others."""
    axes = model.input_static_shapes
    height, width, length = axes.get("height"), axes.get("width"), axes.get("sequence_length")
    if isinstance(height, int) and isinstance(width, int) and hasattr(part, "image_mean"):
        size = {"height": height, "width": width}
        for field in ("size", "crop_size"):
            current = getattr(part, field, None)
            if current is not None and dict(current) != size:
                logger.info("the image processor makes %s=%s, as compiled, instead of %s", field, size, current)
                setattr(part, field, size)
    if length is not None and tokenizer_facts(part).model_max_length is not None:
        part.model_max_length = min(part.model_max_length, length if isinstance(length, int) else length[-1])
