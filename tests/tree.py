"""Files of the tree that git has or would take, and their syntax."""

from __future__ import annotations

import ast
import functools
import importlib.util
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDS_EXTRA = {
    "optimum_neuron.neuronx_distributed.lightning": "lightning",
    "optimum_neuron.neuronx_distributed.lightning_logs": "lightning",
}
"""Modules with classes of a library that is an extra."""


def lacks_extra(module: str) -> bool:
    """Return whether a module cannot be imported, because its extra is not installed."""
    return module in NEEDS_EXTRA and importlib.util.find_spec(NEEDS_EXTRA[module]) is None


def files(*patterns: str) -> list[str]:
    """Return the names of files that exist and match one of the patterns; without patterns, of all."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@functools.cache
def syntax(path: Path) -> ast.Module:
    """Return the parsed code of a file of the tree, which several tests read; none of them may change it."""
    return ast.parse(path.read_text(encoding="utf-8"))
