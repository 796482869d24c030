"""Architectures that were compared with transformers for each task.

`tests/kinds/encoder/test_architectures.py` writes the list; it, `tests/exporters/test_architectures.py` for text
generation, `tests/modeling/test_seq2seq.py` for text to text, `tests/modeling/test_speech.py` for speech to text,
`tests/modeling/test_image_text.py` for images and text, and `test_multimodal.py` for audio and text check each row of
it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .source import require_known_task

SUPPORT_FILE = Path(__file__).with_name("support.json")
"""Model type to task to outcome."""

COMPARED = "compared"
"""Outcome of a model that answers as transformers does; any other outcome is the error."""


def read_support() -> dict[str, dict[str, str]]:
    """Return the list: model type to task to `COMPARED` or the error."""
    return json.loads(SUPPORT_FILE.read_text())


def support_rows(task: str | None = None) -> list[dict[str, Any]]:
    """Return the list as rows: architecture, tasks that were compared, tasks that failed.

    Args:
        task: show only the architectures that were tried for it.
    """
    task = None if task is None else require_known_task(task)
    rows = []
    for model_type, outcomes in read_support().items():
        tried = {name: outcome for name, outcome in outcomes.items() if task in (None, name)}
        if tried:
            compared = [name for name, outcome in tried.items() if outcome == COMPARED]
            refused = [name for name in tried if name not in compared]
            rows.append({"architecture": model_type, "compared": compared, "refused": refused})
    return rows
