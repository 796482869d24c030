"""What `NkiTensor.rearrange` does with dimensions by name: which it splits, their order, and which it joins."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from .core import Rule, refuse, require
from .elements import Elements

Pattern = Sequence[str | Sequence[str]]


def arrangement(
    tensor: Elements, source: Pattern, target: Pattern, sizes: Mapping[str, int]
) -> tuple[list[tuple[int, list[int]]], list[int], list[tuple[int, int]]]:
    """Return dimensions to split with their sizes, the order of all, and the first and last of those to join."""
    before, after = _groups(source), _groups(target)
    names, order = [*itertools.chain(*before)], [*itertools.chain(*after)]
    if (
        len(before) != tensor.ndim
        or not all((*before, *after))
        or len({*names}) != len(names)
        or sorted(names) != sorted(order)
    ):
        refuse(Rule.REARRANGEMENT, of=tensor, source=source, target=target, problem="names differ")
    if unknown := sorted(set(sizes) - set(names)):
        refuse(Rule.REARRANGEMENT, of=tensor, source=source, target=target, problem=f"no name is {', '.join(unknown)}")
    parts = [(dim, _sizes(tensor, dim, group, sizes)) for dim, group in enumerate(before)]
    splits = [(dim, lengths) for dim, lengths in reversed(parts) if len(lengths) > 1]
    joins = [(dim, dim + len(group) - 1) for dim, group in enumerate(after) if len(group) > 1]
    return splits, [names.index(name) for name in order], joins


def _groups(pattern: Pattern) -> list[tuple[str, ...]]:
    return [(item,) if isinstance(item, str) else tuple(item) for item in pattern]


def _sizes(tensor: Elements, place: int, group: Sequence[str], sizes: Mapping[str, int]) -> list[int]:
    """Return the sizes of the parts of a dimension, of which one may be missing."""
    found, size = [sizes.get(name, -1) for name in group], tensor.shape[place]
    known = math.prod(one for one in found if one != -1)
    fits = found.count(-1) <= 1 and known >= 1 and size % known == 0 and (-1 in found or known == size)
    require(fits, Rule.REARRANGED_SIZES, dim=place, tensor=tensor.name, size=size, names=group, sizes=sizes)
    return [size // known if one == -1 else one for one in found]
