"""YAML and JSON files that users write: every problem of a file raises the same error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import ConfigError
from .plain_json import parse_json


def read_document(path: Path) -> Any:
    """Return the value of a YAML file, or of a JSON file by its suffix."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        return parse_json(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        message = f"{path} cannot be read: {' '.join(str(error).split())[:300]}"
        raise ConfigError(message, hint="Pass a YAML or JSON file.", option="config", value=str(path)) from error
