"""`NkiTensor.rearrange`: dimensions by name, which are split, reordered and joined.

It is made of the views that split (`reshape_dim`), reorder (`permute`) and join (`flatten_dims`), and their rules hold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .core import refuse, require
from .rulebook import Rule

if TYPE_CHECKING:
    from .tensor import NkiTensor

Pattern = Sequence[str | Sequence[str]]


def rearranged(tensor: NkiTensor, source: Pattern, target: Pattern, sizes: Mapping[str, int]) -> NkiTensor:
    """Return a tensor with its dimensions in another order."""
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
    view = tensor
    for place, group in reversed([*enumerate(before)]):
        parts = _sizes(tensor, place, group, sizes)
        view = view.reshape_dim(place, parts) if len(group) > 1 else view
    view = view.permute([names.index(name) for name in order])
    for place, group in enumerate(after):
        view = view.flatten_dims(place, place + len(group) - 1) if len(group) > 1 else view
    return view


def _groups(pattern: Pattern) -> list[tuple[str, ...]]:
    return [(item,) if isinstance(item, str) else tuple(item) for item in pattern]


def _sizes(tensor: NkiTensor, place: int, group: Sequence[str], sizes: Mapping[str, int]) -> list[int]:
    """Return the sizes of the parts of a dimension, of which one may be missing."""
    found, size = [sizes.get(name, -1) for name in group], tensor.shape[place]
    known = math.prod(one for one in found if one != -1)
    fits = found.count(-1) <= 1 and known >= 1 and size % known == 0 and (-1 in found or known == size)
    require(fits, Rule.REARRANGED_SIZES, dim=place, tensor=tensor.name, size=size, names=group, sizes=sizes)
    return [size // known if one == -1 else one for one in found]
