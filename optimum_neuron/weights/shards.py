"""The part of a checkpoint tensor that each core of a tensor-parallel group holds, as plain data.

A `Split` divides one dimension of a tensor into ranges, a `Shard` has the splits of the tensors that make a weight, and
`Shards` has those of a whole program. No file is sharded: a part is a view of the mapped checkpoint where its ranges
are neighbors, and a copy where they are not.

    >>> even_split(10, 4).parts
    (((0, 3),), ((3, 3),), ((6, 3),), ((9, 1), (-1, 2)))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.core import TensorSpec
from .mapped import concatenate, convert

if TYPE_CHECKING:
    import torch

ZEROS = -1
"""Start of a range that no tensor has: zeros stand there, which change no sum."""

Range = tuple[int, int]
"""Start and length."""


@dataclasses.dataclass(frozen=True)
class Split:
    """One dimension of a tensor, divided among the cores."""

    size: int
    """Of the whole tensor."""
    parts: tuple[tuple[Range, ...], ...]
    """For each rank the ranges that it holds, joined in this order; all ranks hold equally many elements."""

    @property
    def local_size(self) -> int:
        """Elements of the dimension on one core."""
        return sum(length for _, length in self.parts[0])

    def part(self, tensor: torch.Tensor, dim: int, rank: int) -> torch.Tensor:
        """Return a rank's part of a tensor: a view, or a copy if it is joined from several ranges."""
        pieces = [
            tensor.narrow(dim, start, length)
            if start != ZEROS
            else tensor.new_zeros((*tensor.shape[:dim], length, *tensor.shape[dim + 1 :]))
            for start, length in self.parts[rank]
        ]
        return pieces[0] if len(pieces) == 1 else concatenate(pieces, dim)


@dataclasses.dataclass(frozen=True)
class Shard:
    """Splits of the tensors of one weight; they are joined along dimension 0 afterwards."""

    dim: int
    """Dimension that is divided."""
    splits: tuple[Split, ...]

    def whole(self, local: TensorSpec) -> TensorSpec:
        """Shape of the weight before it was split."""
        size = sum(split.size for split in self.splits) if self.dim == 0 else self.splits[0].size
        return dataclasses.replace(local, shape=(*local.shape[: self.dim], size, *local.shape[self.dim + 1 :]))

    def is_zero(self, rank: int) -> bool:
        """Return whether a rank's part consists of padding."""
        return all(start == ZEROS for split in self.splits for start, _ in split.parts[rank])

    def part(self, tensors: Sequence[torch.Tensor], rank: int) -> torch.Tensor:
        """Return a rank's part of the weight that the tensors make, contiguous."""
        pieces = [split.part(one, self.dim, rank) for split, one in zip(self.splits, tensors, strict=True)]
        part = pieces[0] if len(pieces) == 1 else concatenate(pieces)
        return convert(part, part.dtype)


@dataclasses.dataclass(frozen=True)
class Shards:
    """The split weights of a program."""

    group_size: int = 1
    """Cores that share the model."""
    of_weights: Mapping[str, Shard] = dataclasses.field(default_factory=dict)
    """By the program's weight names; every core holds all of the others."""

    def under(self, prefix: str) -> Shards:
        """Return the same for weights whose names begin with `prefix` and a dot."""
        return Shards(self.group_size, {f"{prefix}.{name}": shard for name, shard in self.of_weights.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; splits that several weights share are there once."""
        splits = list(dict.fromkeys(split for shard in self.of_weights.values() for split in shard.splits))
        number = {split: index for index, split in enumerate(splits)}
        return {
            "group_size": self.group_size,
            "splits": [dataclasses.asdict(split) for split in splits],
            "weights": {
                name: {"dim": shard.dim, "splits": [number[split] for split in shard.splits]}
                for name, shard in self.of_weights.items()
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Shards:
        """Inverse of `to_dict`."""
        splits = [
            Split(
                size=int(one["size"]),
                parts=tuple(tuple((int(start), int(length)) for start, length in part) for part in one["parts"]),
            )
            for one in data["splits"]
        ]
        weights = {
            name: Shard(dim=int(one["dim"]), splits=tuple(splits[index] for index in one["splits"]))
            for name, one in data["weights"].items()
        }
        return cls(group_size=int(data["group_size"]), of_weights=weights)


def even_split(size: int, group_size: int, *, unit: int = 1) -> Split:
    """Divide a dimension into equal parts; the last ones are padded with zeros if the size is no multiple.

    So many neighbors as `unit` stay together, such as gate and up projections that alternate.

    >>> even_split(6, 2, unit=2).parts
    (((0, 4),), ((4, 2), (-1, 2)))
    """
    local = -(-size // (unit * group_size)) * unit
    parts = []
    for rank in range(group_size):
        start = min(rank * local, size)
        length = min(local, size - start)
        parts.append(_joined([(start, length), (ZEROS, local - length)]))
    return Split(size=size, parts=tuple(parts))


def first_split(size: int, group_size: int) -> Split:
    """Give the first core everything and the others zeros: a bias that is added once, before a sum over cores."""
    return Split(size=size, parts=(((0, size),), *([((ZEROS, size),)] * (group_size - 1))))


def unit_split(num_units: int, width: int, units: Sequence[Sequence[int]]) -> Split:
    """Divide a dimension of equal units, such as heads.

    Args:
        num_units: in the whole tensor.
        width: elements of a unit.
        units: Units of each rank, in order; -1 is a unit of zeros.

    Example:
        >>> unit_split(3, 64, [[0, 1], [2, -1]]).parts
        (((0, 128),), ((128, 64), (-1, 64)))
    """
    ranks = [[(unit * width if unit >= 0 else ZEROS, width) for unit in own] for own in units]
    return range_split(num_units * width, ranks)


def range_split(size: int, ranks: Sequence[Sequence[Range]]) -> Split:
    """Divide a dimension into the ranges that each rank holds, in order; neighbors become one."""
    return Split(size=size, parts=tuple(map(_joined, ranks)))


def joined_split(splits: Sequence[Split]) -> Split:
    """Divide tensors that lie one behind the other in a dimension of one tensor, such as query, key and value.

    >>> joined_split([even_split(4, 2), even_split(2, 2)]).parts
    (((0, 2), (4, 1)), ((2, 2), (5, 1)))
    """
    starts = [sum(split.size for split in splits[:number]) for number in range(len(splits))]
    parts = tuple(
        _joined(
            [
                (start if start == ZEROS else start + offset, length)
                for offset, ranges in zip(starts, of_rank, strict=True)
                for start, length in ranges
            ]
        )
        for of_rank in zip(*(split.parts for split in splits), strict=True)
    )
    return Split(size=sum(split.size for split in splits), parts=parts)


def packed_split(size: int, num_packed: int, group_size: int) -> Split:
    """Divide each of several tensors that lie one behind the other in a dimension, such as gate and up projections.

    >>> packed_split(8, 2, 2).parts
    (((0, 2), (4, 2)), ((2, 2), (6, 2)))
    """
    return joined_split([even_split(size // num_packed, group_size)] * num_packed)


def _joined(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """Join ranges that follow each other."""
    joined: list[Range] = []
    goes_on = None
    for start, length in ranges:
        if not length:
            continue
        if start == goes_on:
            begin, before = joined.pop()
            joined.append((begin, before + length))
        else:
            joined.append((start, length))
        goes_on = ZEROS if start == ZEROS else start + length
    return tuple(joined)
