"""JSON of files that anyone may have written: every problem of a file raises the same error.

`json.loads` raises RecursionError for text that is nested deeply, and reading a file can fail in two more ways. Readers
here have one error to handle. It does not depend on the meaning of the files.

    try:
        record = parse_json(path.read_bytes())
    except ValueError:
        ...
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import ModelError


def parse_json(data: bytes | str) -> Any:
    """Return the value of a JSON text.

    >>> parse_json(b'{"version": 1}')
    {'version': 1}
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_json(path: Path) -> Any:
    """Return the value of a JSON file that belongs to a model."""
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file that belongs to a model."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise _unreadable(path, f"it holds a {type(content).__name__} instead of an object")
    return content


def _unreadable(path: Path, problem: str) -> ModelError:
    message = f"{path} is damaged: {problem}."
    return ModelError(message, hint="Copy the file again from its source, or export the model again.", file=str(path))
