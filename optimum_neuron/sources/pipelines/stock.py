"""A stock pipeline of diffusers around components without weights, and which class it has.

Schedulers, tokenizers and processors are real; models are those that are passed, or have no weights.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.foreign import module_facts
from ...base.progress import hidden_bars
from ...base.wording import first_line
from ...errors import ModelError, nearest
from ...files.plain_json import read_object
from ..pipeline_index import FACTS, INDEX_FILE, DiffusersConfig
from ..source import ModelSource, read_config
from .additions import PipelineAdditions
from .safety import SAFETY_CHECKER, cast_checker
from .variants import MULTI, NETS, describe_module

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

_TASK_TABLES = {
    "text-to-image": "AUTO_TEXT2IMAGE_PIPELINES_MAPPING",
    "image-to-image": "AUTO_IMAGE2IMAGE_PIPELINES_MAPPING",
    "inpainting": "AUTO_INPAINT_PIPELINES_MAPPING",
}
"""diffusers' tables of the pipelines of one model for several tasks."""


def require_diffusers() -> None:
    """Check that diffusers is installed."""
    try:
        import diffusers  # noqa: F401
    except ImportError as error:
        message = f"diffusers is needed for diffusion pipelines and cannot be imported: {first_line(error)}"
        raise ModelError(message, hint="pip install optimum-neuron-sim[diffusers]", package="diffusers") from error


def pipeline_class(name: str, task: str = "auto") -> Any:
    """Return a pipeline's class in diffusers; of the models of one class, that for a task.

    Raises:
        ModelError: diffusers has no such class, or none for the task.
    """
    require_diffusers()
    import diffusers
    from diffusers.pipelines import auto_pipeline

    from ...upstream.diffusers import get_task_class

    own = getattr(diffusers, name, None)
    if own is None or not name.endswith("Pipeline"):
        guess = nearest(name, [known for known in dir(diffusers) if known.endswith("Pipeline")]) or "."
        raise ModelError(f"diffusers has no pipeline {name}{guess}", hint="Upgrade diffusers.", architecture=name)
    tables = {key: getattr(auto_pipeline, table) for key, table in _TASK_TABLES.items()}
    if task not in tables or own in tables[task].values():
        return own
    found = get_task_class(tables[task], name, throw_error_if_not_exist=False)
    if found is not None:
        return found
    if all(own not in table.values() for table in tables.values()):
        return own  # no table has it, so its task is unknown
    raise ModelError(f"diffusers has no pipeline for {task} beside {name}.", hint="Pass another task.", task=task)


def component_sources(
    source: ModelSource, kind: type[DiffusionPipeline], modules: Mapping[str, Any]
) -> dict[str, ModelSource]:
    """Return the models of a pipeline that are compiled, by their names in it.

    Args:
        modules: models in memory that take the place of those in the folder.
    """
    sources = {}
    for name, row in {**source.config.to_dict(), **dict.fromkeys(modules, (None, None))}.items():
        if name not in inspect.signature(kind.__init__).parameters or not isinstance(row, (list, tuple)):
            continue
        if (module := modules.get(name)) is not None:
            is_transformers = hasattr(module_facts(module).config, "model_type")
            config = module.config if is_transformers else DiffusersConfig(describe_module(module))
            sources[name] = ModelSource(name=name, folder=source.folder, config=config, revision=None, module=module)
        elif row[0] in ("diffusers", "transformers") and row[1] is not None and _is_model(source.folder, name, row):
            config = _nets_config(source.folder, name) if row[1] == MULTI else read_config(source.folder / name)
            config.architectures = [row[1]]
            sources[name] = ModelSource(
                name=f"{source.name}/{name}", folder=source.folder / name, config=config, revision=source.revision
            )
    return sources


def _nets_config(folder: Path, name: str) -> DiffusersConfig:
    """The configuration of several ControlNets, which have a folder each: controlnet, controlnet_1, ..."""
    folders = [path for path in sorted(folder.glob(f"{name}*")) if (path / "config.json").is_file()]
    nets = [read_object(path / "config.json") for path in folders]
    return DiffusersConfig({"_class_name": MULTI, NETS: nets})


def _is_model(folder: Path, name: str, row: Any) -> bool:
    """Return whether a part of a pipeline is a model, and not a scheduler, a tokenizer, or a processor."""
    import importlib

    from torch import nn

    kind = getattr(importlib.import_module(row[0]), row[1].removeprefix("Flax"), None)
    if kind is None or not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        return False
    _require_folder(folder, name, hint="Download the pipeline again.")
    return True


def _require_folder(folder: Path, name: str, *, hint: str) -> None:
    if not (folder / name).is_dir():
        message = f"The component {name} of the pipeline in {folder} is missing."
        raise ModelError(message, hint=hint, folder=str(folder), component=name)


def stock_pipeline(
    source: ModelSource, kind: type[DiffusionPipeline], models: Mapping[str, Any], *, dtype: str = "float32"
) -> Any:
    """Build a stock pipeline of a class with the given models; what else it has is loaded from its folder.

    Args:
        models: parts by name; None leaves one out.
    """
    from diffusers.utils import logging as messages

    for name, row in source.config.to_dict().items():
        is_part = name in inspect.signature(kind.__init__).parameters and isinstance(row, (list, tuple))
        if is_part and row[1] is not None and name not in models:
            hint = "Download the pipeline again."
            if name == SAFETY_CHECKER:
                hint = "Download the pipeline again, or pass safety_checker=None to leave it out."
            _require_folder(source.folder, name, hint=hint)
    try:
        verbosity = messages.get_verbosity()
        messages.set_verbosity_error()
        with hidden_bars(messages):
            pipe = kind.from_pretrained(source.folder, local_files_only=True, **models)
    except (OSError, ValueError, TypeError, RuntimeError, ImportError, AttributeError) as error:
        message = f"diffusers cannot build the {kind.__name__} in {source.folder}: {first_line(error)}"
        raise ModelError(message, hint="Check the folder, or pass another task.", folder=str(source.folder)) from error
    finally:
        messages.set_verbosity(verbosity)
    cast_checker(pipe, dtype)
    return pipe


def read_additions(folder: Path) -> PipelineAdditions:
    """Read what was added to an exported pipeline."""
    facts = read_object(folder / INDEX_FILE).get(FACTS, {})
    return PipelineAdditions.from_options(facts.get("additions", {}))
