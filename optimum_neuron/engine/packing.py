"""Padded batches to packed rows and back, and the compiled size that fits an input: the only place that chooses one.

choose_bucket(20, (16, 64), subject="The prompt", measure="20 tokens", hint="Shorten it.").value    # 64

A compiled decoder keeps each row's tokens at the cache slots 0, 1, 2 ... without gaps, so padding on either
side costs no slot and needs no mask. Logits of padding columns are those of the token before them.

Shape legend: R rows, C columns of the padded batch, T new columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from ..base.core import Choice, Rejected
from ..errors import ShapeError

if TYPE_CHECKING:
    import torch

    from .sequences import Group


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packing:
    """Cache position of each new column of a padded batch."""

    positions_RT: torch.Tensor
    """Position, and cache slot, of each real token; padding has that of the token before it."""
    valid_RT: torch.Tensor
    """Mask of real tokens."""
    first_R: torch.Tensor
    """Position of each row's first new token."""

    def take(self, group: Group) -> Packing:
        """Return the packing of a group of sequences."""
        return Packing(
            positions_RT=group.take(self.positions_RT),
            valid_RT=group.take(self.valid_RT),
            first_R=group.take(self.first_R),
        )

    @property
    def lengths_R(self) -> torch.Tensor:
        """Real tokens in each row."""
        return self.valid_RT.sum(1)

    @property
    def index_RT(self) -> torch.Tensor:
        """Column of the packed rows that each column of the padded batch reads its logits from."""
        return (self.positions_RT - self.first_R[:, None]).clamp_(min=0)

    def pack(self, columns_RT: torch.Tensor, length: int) -> torch.Tensor:
        """Move what real tokens have [R, T, ...] to the left, and pad with zeros to `length`."""
        import torch

        packed = columns_RT.new_zeros(columns_RT.shape[0], length, *columns_RT.shape[2:])
        packed[torch.arange(length) < self.lengths_R[:, None]] = columns_RT[self.valid_RT]
        return packed


def plan_packing(attention_mask_RC: torch.Tensor, num_past: int) -> Packing:
    """Work out positions from a mask over all columns, of which `num_past` are in the cache."""
    import torch

    counted_RC = attention_mask_RC.long().cumsum(1)
    first_R = counted_RC[:, num_past - 1] if num_past else torch.zeros(len(counted_RC), dtype=torch.long)
    return Packing(
        positions_RT=(counted_RC[:, num_past:] - 1), valid_RT=attention_mask_RC[:, num_past:].bool(), first_R=first_R
    )


def check_positions(position_ids_RT: torch.Tensor | None, packing: Packing) -> None:
    """Accept positions that count the real tokens, and refuse all others."""
    if position_ids_RT is None:
        return
    position_ids_RT = position_ids_RT.expand(packing.positions_RT.shape[0], -1)
    wrong = (position_ids_RT != packing.positions_RT) & packing.valid_RT
    if wrong.any():
        row, column = wrong.nonzero()[0].tolist()
        position, expected = int(position_ids_RT[row, column]), int(packing.positions_RT[row, column])
        message = f"position_ids has {position} for row {row}, column {column}, whose token has position {expected}."
        hint = "Leave position_ids out, or pass the running count of attention_mask minus 1."
        raise ShapeError(message, hint=hint, row=row, column=column, position=position, expected=expected)


MOST_PADDING = 8
"""A chunk has at most so many times the tokens that it is used for, unless it is the shortest one."""


def smallest_bucket(size: int, buckets: Iterable[int]) -> int | None:
    """Return the smallest bucket that holds `size`, or None if every bucket is smaller.

    Example:
        ```python
        from optimum_neuron.engine.packing import smallest_bucket

        assert (smallest_bucket(16, [64, 16]), smallest_bucket(65, [64, 16])) == (16, None)
        ```
    """
    return min((bucket for bucket in buckets if size <= bucket), default=None)


def choose_bucket(size: int, buckets: Sequence[int], *, subject: str, measure: str, hint: str) -> Choice[int]:
    """Return the smallest bucket that holds an input, and the reason.

    Args:
        subject: the input in words, for example "The prompt".
        measure: its size in words, for example "20 tokens".
    """
    bucket = smallest_bucket(size, buckets)
    if bucket is None:
        sizes = ", ".join(map(str, buckets))
        message = f"{subject} has {measure}, more than any compiled bucket holds ({sizes})."
        raise ShapeError(message, hint=hint, size=size, buckets=list(buckets))
    return Choice(
        value=bucket,
        reason=f"smallest bucket that holds {measure}",
        rejected=tuple(
            Rejected(candidate=str(other), reason=f"less than {measure}") for other in buckets if other < size
        ),
    )


def chunk_length(lengths: Collection[int], *, num_left: int, room: int) -> int:
    """Return how many tokens a call adds to sequences in the cache: the most that are not nearly all padding.

    It is 1, a decode step, where every compiled chunk would reach past the cache.

    Args:
        room: slots that are left in the cache.

    >>> [chunk_length([8, 1024], num_left=n, room=2000) for n in (2000, 128, 127, 1)]
    [1024, 1024, 8, 8]
    """
    fitting = [length for length in lengths if length <= room]
    used = [length for length in fitting if length <= MOST_PADDING * num_left]
    return max(used, default=min(fitting, default=1))
