"""What this package replaces in safetensors."""

from __future__ import annotations

from .contract import Patch

SAFE_OPEN = Patch(
    target="safetensors.safe_open",
    why="safetensors knows devices by name from a list without this one, but accepts the index of an accelerator.",
)
ROWS = (SAFE_OPEN,)
