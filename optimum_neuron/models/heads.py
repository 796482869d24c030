"""Which attention heads each core of a tensor-parallel group computes, as plain data."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class HeadLayout:
    """Which heads each core computes; -1 is a head of zeros, which pads.

    All cores have equally many query heads, and each key head serves equally many of them. A key head whose query heads
    are on several cores is on each of them.
    """

    queries: tuple[tuple[int, ...], ...]
    """Query heads of each rank."""
    keys: tuple[tuple[int, ...], ...]
    """Key and value heads of each rank."""

    @property
    def num_local(self) -> tuple[int, int]:
        """Query and key heads of one core."""
        return len(self.queries[0]), len(self.keys[0])


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
        queries=tuple(
            tuple(head for _, heads in own for head in [*heads, *[-1] * (together - len(heads))]) for own in ranks
        ),
        keys=tuple(tuple(key for key, _ in own) for own in ranks),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heads:
    """Heads of the attention layers of a model."""

    num_heads: int
    """Query heads."""
    num_kv_heads: int
    """Key and value heads."""
    layout: HeadLayout
    """Which core has which."""


def grouped_heads(heads: Heads) -> list[list[int]]:
    """Heads of each rank in a tensor that has for each key head its queries, the key and the value.

    Each rank gets its own in the same order.
    """
    per_key = heads.num_heads // heads.num_kv_heads
    ranks = []
    for queries, keys in zip(heads.layout.queries, heads.layout.keys, strict=True):
        together, own = len(queries) // len(keys), []
        for place, key in enumerate(keys):
            first = key * (per_key + 2)
            for query in queries[place * together : (place + 1) * together]:
                own.append(-1 if query < 0 else first + query - key * per_key)
            own += [-1, -1] if key < 0 else [first + per_key, first + per_key + 1]
        ranks.append(own)
    return ranks
