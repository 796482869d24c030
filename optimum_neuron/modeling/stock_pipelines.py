"""Let transformers' own `pipeline` serve an exported folder.

    from transformers import pipeline
    chat = pipeline("text-generation", "smollm2_neuron")

transformers has a table of the auto classes that load the models of each pipeline. `install` replaces each class in
that table by a subclass, which loads exported folders as compiled models and everything else as before. The auto
classes themselves do not change. Importing this module is cheap, as torch imports it with the device.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from ..base.after_import import after_import


def install() -> None:
    """Serve exported folders, now or once transformers' pipelines are imported; repeated calls do nothing."""
    after_import("transformers.pipelines", _serve)


def _serve(pipelines: ModuleType) -> None:
    for row in pipelines.PIPELINE_REGISTRY.supported_tasks.values():
        row["pt"] = tuple(map(_serving, row["pt"]))


def _serving(auto_class: Any) -> type[Any]:
    """Return a subclass of `auto_class` that also loads exported folders."""
    if hasattr(auto_class, "_loads_exports"):
        return auto_class

    class Serving(auto_class):
        _loads_exports = True

        @classmethod
        def from_pretrained(cls, name: Any, *args: Any, **options: Any) -> Any:
            """Load an exported folder as a compiled model, anything else as the auto class does."""
            folder = _exported_folder(name, options.get("subfolder"))
            if folder is None:
                return super().from_pretrained(name, *args, **options)
            return _load(folder, str(name), options)

    # Code that comes with a checkpoint is found by the name of the auto class.
    Serving.__name__, Serving.__qualname__ = auto_class.__name__, auto_class.__qualname__
    return Serving


def _exported_folder(name: Any, subfolder: str | None) -> Path | None:
    """Return the local folder of that name if it has an export or a part of one, else None."""
    from ..options.configuration import is_broken_export, is_export

    folder = Path(name, subfolder or "")
    return folder if is_export(folder) or is_broken_export(folder) else None


def _load(folder: Path, name: str, options: dict[str, Any]) -> Any:
    """Load an exported folder, or raise a plain `NeuronError`.

    After a ValueError, RuntimeError, or OSError, transformers would run the original model instead.
    """
    from .. import modeling
    from ..errors import ModelError, NeuronError
    from ..exporters import read_folder
    from ..sources import find_task, plain_pipeline, read_config

    pipeline, dtype = options.pop("_from_pipeline", None), options.pop("dtype", None)
    options.pop("code_revision", None)  # of a checkpoint's custom code, which a compiled model does not have
    options = {key: value for key, value in options.items() if value is not None}
    if dtype not in (None, "auto"):
        options["torch_dtype"] = str(dtype).removeprefix("torch.")
    try:
        task = read_folder(folder).config.task
        if pipeline is not None and plain_pipeline(pipeline) != task:
            message = f"{name} was exported for {task}, but the pipeline is for {pipeline}."
            hint = f"Use a pipeline for {task}, or export the checkpoint for {plain_pipeline(pipeline)}."
            raise ModelError(message, hint=hint, pipeline=pipeline, task=task)
        config = read_config(folder, trust_remote_code=options.get("trust_remote_code", False))
        model_class = getattr(modeling, find_task(task, config.model_type).model_class)
        return model_class.from_pretrained(name, export=False, **options)
    except (ValueError, RuntimeError, OSError) as error:
        if isinstance(error, NeuronError):
            raise NeuronError(error.message, hint=error.hint, **error.details) from error
        raise NeuronError(str(error)) from error
