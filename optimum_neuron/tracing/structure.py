"""Nested tuples, lists and dictionaries of tensors as flat lists, and back.

A skeleton is the same nesting with numbers in place of tensors. `torch.jit.trace` accepts exactly these structures, so
a traced model takes and returns the same ones as the original module. It does not depend on graphs.

    >>> from optimum_neuron.tracing.structure import rebuild
    >>> rebuild({"logits": 0, "states": (1, 2)}, ["a", "b", "c"])
    {'logits': 'a', 'states': ('b', 'c')}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError

if TYPE_CHECKING:
    import torch

Skeleton = Any
"""A tuple, list or dict of skeletons, or the number of a leaf."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flat:
    """A nested value, taken apart."""

    skeleton: Skeleton
    """The nesting, with the position of each leaf."""
    tensors: tuple[torch.Tensor, ...]
    """The leaves."""
    names: tuple[str, ...]
    """Path of each leaf, for example "x.mask" or "output.0"."""


def flatten(value: object, what: str) -> Flat:
    """Take a nested value apart; `what` names its root.

    Raises:
        ConfigError: a leaf is not a tensor, or a container is of another kind; all are named.
    """
    import torch

    tensors: list[torch.Tensor] = []
    names: list[str] = []
    others: dict[str, str] = {}

    def visit(item: object, name: str) -> Skeleton:
        if isinstance(item, torch.Tensor):
            tensors.append(item)
            names.append(name)
            return len(tensors) - 1
        if isinstance(item, Mapping):
            return {key: visit(part, f"{name}.{key}") for key, part in item.items()}
        if isinstance(item, (tuple, list)):
            parts = [visit(part, f"{name}.{index}") for index, part in enumerate(item)]
            if hasattr(item, "_fields"):
                return type(item)(*parts)
            return tuple(parts) if isinstance(item, tuple) else parts
        others[name] = type(item).__name__
        return -1

    skeleton = visit(value, what)
    if others:
        listing = "; ".join(f"{name} is {kind}" for name, kind in others.items())
        message = f"Tracing needs tensors in tuples, lists, and dictionaries: {listing}."
        hint = "Wrap the model in a module that fixes the other arguments and returns tensors only."
        raise ConfigError(message, hint=hint, types=others)
    return Flat(skeleton=skeleton, tensors=tuple(tensors), names=tuple(names))


def rebuild(skeleton: Skeleton, leaves: Sequence[Any]) -> Any:
    """Put leaves into a skeleton."""
    if isinstance(skeleton, dict):
        return {key: rebuild(part, leaves) for key, part in skeleton.items()}
    if isinstance(skeleton, (tuple, list)):
        parts = [rebuild(part, leaves) for part in skeleton]
        return type(skeleton)(*parts) if hasattr(skeleton, "_fields") else type(skeleton)(parts)
    return leaves[skeleton]


def pick(skeleton: Skeleton, value: Any) -> list[Any]:
    """The leaves of a value that has this nesting, in order; for use while `torch.jit.trace` records."""
    if isinstance(skeleton, dict):
        return [leaf for key, part in skeleton.items() for leaf in pick(part, value[key])]
    if isinstance(skeleton, (tuple, list)):
        return [leaf for part, item in zip(skeleton, value, strict=True) for leaf in pick(part, item)]
    return [value]


def without(skeleton: Skeleton, dropped: Collection[int]) -> Skeleton:
    """The skeleton of the rest of a tuple or list; a single element stands for itself.

    Leaves are numbered again. Only leaves of the outermost container are dropped.
    """
    parts = [part for part in skeleton if not (isinstance(part, int) and part in dropped)]
    leaves = sorted(leaf for part in parts for leaf in pick(part, part))
    numbered = rebuild(parts, {old: new for new, old in enumerate(leaves)})  # type: ignore[arg-type]
    return numbered[0] if len(numbered) == 1 else type(skeleton)(numbered)
