"""Which attention heads each core of a tensor-parallel group computes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Literal

from ..errors import ConfigError
from ..weights import ZEROS, Range, Split, joined_split, range_split, unit_split

Part = tuple[Literal["queries", "key"], int]
"""What a tensor has of a key head: a number of elements for it, or for each of its query heads."""


@dataclasses.dataclass(frozen=True)
class HeadLayout:
    """Which heads each core computes; -1 is a head of zeros, which pads.

    All cores have equally many query heads, and each key head serves equally many of them. A key head whose query heads
    are on several cores is on each of them.
    """

    num_heads: int
    """Query heads of the whole layer."""
    num_kv_heads: int
    queries: tuple[tuple[int, ...], ...]
    """Query heads of each rank."""
    keys: tuple[tuple[int, ...], ...]
    """Key and value heads of each rank."""

    @property
    def num_local(self) -> tuple[int, int]:
        """Query and key heads of one core."""
        return len(self.queries[0]), len(self.keys[0])

    def of_queries(self, width: int) -> Split:
        """Divide query heads of so many elements."""
        return unit_split(self.num_heads, width, self.queries)

    def of_keys(self, width: int) -> Split:
        """Divide key or value heads of so many elements."""
        return unit_split(self.num_kv_heads, width, self.keys)

    def packed(self, width: int) -> Split:
        """Divide a tensor of all query heads, then all key heads, then all value heads."""
        return joined_split([self.of_queries(width), self.of_keys(width), self.of_keys(width)])

    def grouped(self, width: int) -> Split:
        """Divide a tensor of groups, each of which has the query heads of a key head, the key head and its value."""
        return self.groups(("queries", width), ("key", width), ("key", width))

    def groups(self, *parts: Part) -> Split:
        """Divide a tensor that has the same parts for each key head, one group behind the other.

        A part has so many elements for the key head, or for each query head that this serves.
        """
        per_key, local = self.num_heads // self.num_kv_heads, len(self.queries[0]) // len(self.keys[0])
        *starts, group = itertools.accumulate((w * (per_key if of == "queries" else 1) for of, w in parts), initial=0)

        def own(queries: Sequence[int], key: int) -> Iterator[Range]:
            """What a core has of a key head and of its query heads."""
            for (of, width), start in zip(parts, starts, strict=True):
                heads = [min(key, 0)] if of == "key" else [q % per_key if q >= 0 else -1 for q in queries]
                yield from ((key * group + start + head * width if head >= 0 else ZEROS, width) for head in heads)

        ranks = [
            [one for at, key in enumerate(keys) for one in own(queries[at * local : (at + 1) * local], key)]
            for queries, keys in zip(self.queries, self.keys, strict=True)
        ]
        return range_split(self.num_kv_heads * group, ranks)


def head_layout(num_heads: int, num_kv_heads: int, group_size: int) -> HeadLayout:
    """Divide heads among cores with as few heads of zeros and copies as possible.

    Example:
        >>> head_layout(8, 2, 4).keys
        ((0,), (0,), (1,), (1,))
        >>> head_layout(9, 3, 2).queries
        ((0, 1, 2, 3, 4, 5), (6, 7, 8, -1, -1, -1))
    """
    per_key = num_heads // num_kv_heads

    def size(together: int) -> tuple[int, int]:
        num_keys = -(-num_kv_heads * -(-per_key // together) // group_size)
        return num_keys * (together + 2), -together

    together = min(range(1, per_key + 1), key=size)
    groups = [
        (key, [*range(start, min(start + together, (key + 1) * per_key))])
        for key in range(num_kv_heads)
        for start in range(key * per_key, (key + 1) * per_key, together)
    ]
    num_keys = -(-len(groups) // group_size)
    groups += [(-1, [])] * (num_keys * group_size - len(groups))
    ranks = [groups[rank * num_keys : (rank + 1) * num_keys] for rank in range(group_size)]
    return HeadLayout(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        queries=tuple(
            tuple(head for _, heads in own for head in [*heads, *[-1] * (together - len(heads))]) for own in ranks
        ),
        keys=tuple(tuple(key for key, _ in own) for own in ranks),
    )


def require_group_size(group_size: int, *, num_heads: int, model_type: str) -> None:
    """Check that a model can be divided among so many cores."""
    if group_size > num_heads:
        raise ConfigError(
            f"tensor_parallel_size={group_size} is more than the {num_heads} attention heads of this {model_type} "
            "model: some cores would have none.",
            hint=f"Pass at most {num_heads}.",
            option="tensor_parallel_size",
            value=group_size,
            num_heads=num_heads,
        )
