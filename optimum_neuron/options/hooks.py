"""What packages above provide to a configuration; `wiring.py` sets it, without importing `configuration.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Hooks:
    """Functions that packages above provide."""

    exported_config: Callable[[str | Path, Mapping[str, Any]], object]
    """Return the configuration of an exported model, a `CompileConfig`."""


HOOKS = Hooks()
"""The hooks of this process."""
