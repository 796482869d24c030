"""Location of an exported graph's node in the user's model: module path and source line.

Reads `nn_module_stack` and `stack_trace` from the node's meta and does not depend on operators.

    >>> from optimum_neuron.compiler.rules.location import merge_paths
    >>> merge_paths(["model.layers.0.mlp", "model.layers.1.mlp", "lm_head"])
    ('model.layers.0-1.mlp', 'lm_head')
"""

from __future__ import annotations

import functools
import re
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import Node

_FRAME = re.compile(r'File "(?P<file>.+?)", line (?P<line>\d+)')
_NOISE = re.compile(r"slice\([^)]*\)\.?|@\d+|^L\['(?:self|fn)'\]\.?|^L__self__\.?")
"""Left in paths by tracing: slices of a ModuleList, numbers of repeated calls, the root's name in Dynamo."""
_LOCAL = re.compile(r"^L\['(\w+)'\]")
"""Dynamo's name of a module that is a local variable."""


def module_path(node: Node) -> str | None:
    """Return the innermost module of a node, like "model.layers.3.mlp"; "" is the top, None unknown."""
    # Nodes of a backward graph remember the modules of the forward that they belong to.
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return None
    path = list(stack.values())[-1][0]
    return _LOCAL.sub(r"\1", _NOISE.sub("", path)).strip(".")


def source_line(node: Node) -> str | None:
    """Return "file:line" of the innermost frame of the user, None where the graph does not know it."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return next((f"{_cut(file, Path.cwd())}:{line}" for file, line in reversed(frames) if is_users(file)), None)


def merge_paths(paths: Iterable[str]) -> tuple[str, ...]:
    """Join paths that differ in one number, in order of appearance: layers 0 to 31 become "0-31"."""
    groups: dict[tuple[str, ...], set[int]] = {}
    for path in paths:
        parts = path.split(".")
        numbers = [index for index, part in enumerate(parts) if part.isdigit()]
        if numbers:
            first = numbers[0]
            key = (".".join(parts[:first]), ".".join(parts[first + 1 :]))
            groups.setdefault(key, set()).add(int(parts[first]))
        else:
            groups.setdefault((path,), set())
    return tuple(
        key[0] if not numbers else ".".join(part for part in (key[0], _ranges(sorted(numbers)), key[1]) if part)
        for key, numbers in groups.items()
    )


def _ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 5] -> "0-2,5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


@functools.cache
def _cut(file: str, working_folder: Path) -> str:
    path = Path(file)
    for folder in (*_package_folders(), working_folder):
        if path.is_relative_to(folder):
            return str(path.relative_to(folder))
    return file


@functools.cache
def _package_folders() -> tuple[Path, ...]:
    return Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("platlib"))


@functools.cache
def is_users(file: str) -> bool:
    """Return whether a file is neither torch's nor of the part of this package that calls traced functions."""
    import torch

    folders = Path(torch.__file__).parent, Path(__file__).resolve().parents[2] / "tracing"
    return not any(map(Path(file).is_relative_to, folders))
