"""Check that a folder, checkpoint or export, fits the arguments of `from_pretrained`."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from ..base.upstream_rules import follows_upstream
from ..errors import ConfigError, NotExportedError
from ..exporters import is_broken_export, is_export, read_folder, refuse_vendor_export

logger = logging.getLogger(__name__)


def require_name(model_id: object, model_class: str) -> None:
    """Check that `model_id` is a name or a path."""
    if isinstance(model_id, (str, os.PathLike)):
        return
    kind, method, hint = type(model_id).__name__, None, "Pass a string or a path."
    if any(base.__module__.startswith("torch.nn") for base in type(model_id).__mro__):
        method, hint = "from_model", f"Call {model_class}.from_model(model)."
    message = f"from_pretrained takes a folder, a Hub model ID, or a catalogue name, not a {kind}."
    raise ConfigError(message, hint=hint, type=kind, method=method)


def require_form(folder: Path, name: str, export: bool | None, how: dict[str, Any]) -> None:
    """Check that an export is not exported again, and that a checkpoint may be exported.

    A checkpoint is exported with a warning if `export` is None; Optimum Neuron's rules require True.
    """
    if is_export(folder):
        options = {key: value for key, value in {"export": export, **how}.items() if value not in (None, False)}
        if options:
            given = ", ".join(f"{key}={value}" for key, value in options.items())
            hint = f"Remove {' and '.join(options)}, or pass the checkpoint."
            message = f"{name} has already been exported, so {given} has no effect."
            raise ConfigError(message, hint=hint, options=options)
        return
    refuse_vendor_export(folder)
    if is_broken_export(folder) and not export:
        read_folder(folder)  # reports missing keys
    if export is False or (export is None and follows_upstream()):
        raise not_exported(name, export)
    if export is None:
        advice = "Pass export=True to say so, and save_pretrained() to keep the result."
        logger.warning("%s is a plain checkpoint: it is exported now. %s", name, advice)


def not_exported(name: str, export: bool | None) -> NotExportedError:
    """Return the error for a checkpoint that may not be exported."""
    message = f"{name} is a plain checkpoint, which must be exported before it can run."
    return NotExportedError(message, hint="Pass export=True.", option="export", value=export)
