"""Which architectures were compared with transformers for which tasks, as the tests found it.

`tests/exporters/encoders/test_architectures.py` writes the list and checks each row of it.
"""

from __future__ import annotations

import json
from pathlib import Path

SUPPORT_FILE = Path(__file__).with_name("support.json")
"""Model type to task to outcome."""

COMPARED = "compared"
"""Outcome of a model that answers as transformers does; any other is the refusal."""


def read_support() -> dict[str, dict[str, str]]:
    """The list: model type to task to `COMPARED` or the refusal."""
    return json.loads(SUPPORT_FILE.read_text())
