"""What a folder holds, a checkpoint or an export, against what `from_pretrained` was asked to do with it."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from ..errors import ConfigError, refusal
from ..exporters.folder import is_broken_export, is_export, read_folder
from ..exporters.vendor_folder import refuse_vendor_export

logger = logging.getLogger(__name__)


def require_name(model_id: Any, model_class: str) -> None:
    """Refuse what is no name or path of a model, such as a model in memory.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(model_id, (str, os.PathLike)):
        return
    kind = type(model_id).__name__
    is_module = any(base.__module__.startswith("torch.nn") for base in type(model_id).__mro__)
    raise ConfigError(
        refusal(
            asked=f"{model_class}.from_pretrained({kind})",
            found="a model in memory" if is_module else "no path and no name",
            why="from_pretrained reads a folder, a Hub model ID, or a name of the catalogue",
            do=f"call {model_class}.from_model(model)" if is_module else "pass one of these as text or as a path",
        ),
        details={"type": kind, "method": "from_model" if is_module else None},
    )


def require_form(folder: Path, name: str, export: bool | None, how: dict[str, Any]) -> None:
    """Refuse to export what has been exported, and to load what has not; say so where nobody asked for an export.

    Raises:
        ConfigError: `export`, or an option of exports in `how`, does not fit what the folder holds.
        ArtifactError: it holds half an export, or one for hardware.
    """
    if is_export(folder):
        asked = {key: value for key, value in {"export": export, **how}.items() if value not in (None, False)}
        if asked:
            raise ConfigError(
                refusal(
                    asked=f"{', '.join(f'{key}={value}' for key, value in asked.items())} for {name}",
                    found="it has already been exported",
                    why="there is nothing to export",
                    do=f"leave {' and '.join(asked)} out, or pass the checkpoint",
                )
            )
        return
    refuse_vendor_export(folder)
    if is_broken_export(folder) and not export:
        read_folder(folder)  # says what is missing
    if export is False:
        raise ConfigError(
            refusal(
                asked=f"export=False for {name}",
                found="a plain checkpoint",
                why="it must be exported before it can run",
                do="pass export=True",
            )
        )
    if export is None:
        logger.warning(
            "%s is a plain checkpoint: it is exported now. Pass export=True to say so, and "
            "save_pretrained() to keep the result.",
            name,
        )
