"""Which bucket of a program of NxD Inference takes a call. It does not know models.

>>> bucket_of_length([128, 256, 512], 200)
256
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..errors import ShapeError, invalid_choice

FIRST, SECOND = "first_fit", "second_fit"
"""The smallest bucket that fits, or the one after it."""
_SMALL_CONTEXT, _WHOLE_PROMPT = (256, 512), [512, 0]
"""Tokens of a prompt and its prefix that take one bucket without a prefix."""


def bucket_of_length(
    buckets: Sequence[int], length: int, *, extra: int = 0, strategy: str = FIRST, may_cut: bool = False
) -> int:
    """Return the bucket of a number of columns; a full one is only taken if there is none after it.

    Args:
        buckets: columns, in order.
        length: columns of the call.
        extra: columns that a draft needs.
        strategy: `FIRST` or `SECOND`.
        may_cut: the last bucket also takes what is longer.
    """
    needed = length + (extra if strategy == FIRST else 0)
    place = next((place for place, bucket in enumerate(buckets) if needed < bucket), None)
    if place is not None:
        return buckets[min(place + (strategy == SECOND), len(buckets) - 1)]
    if length + extra == buckets[-1] or may_cut:
        return buckets[-1]
    raise _too_long(length, buckets)


def bucket_of_batch(
    buckets: Sequence[Sequence[int]], num_rows: int, length: int, *, extra: int = 0, may_cut: bool = False
) -> Sequence[int]:
    """Return the smallest pair of rows and columns that fits, fewer rows first.

    Args:
        buckets: pairs.
        num_rows: rows of the call.
        length: its columns.
        extra: columns that a draft needs.
        may_cut: the largest pair also takes what is longer.
    """
    if fitting := [one for one in buckets if num_rows <= one[0] and length + extra <= one[1]]:
        return min(fitting, key=tuple)
    largest = max(buckets, key=tuple)
    if may_cut and num_rows <= largest[0]:
        return largest
    raise _too_long(length, buckets)


def bucket_of_step_with_prefix(
    buckets: torch.Tensor, new: torch.Tensor, prefix: torch.Tensor, *, extra: int, strategy: str, may_cut: bool
) -> torch.Tensor:
    """Return the pair of new tokens and tokens of the cache of a step.

    Args:
        buckets: pairs [buckets, 2].
        new: new tokens of each row.
        prefix: tokens of the cache of each row.
        extra: tokens that a draft needs.
        strategy: `FIRST` or `SECOND`.
        may_cut: the last pair also takes what is longer.
    """
    fits = (buckets[:, 0] >= new.max()) & (buckets[:, 1] > prefix.max() + extra)
    if bool(fits.any()):
        place = int(torch.where(fits, buckets[:, 1], buckets.max() + 1).argmin())
        return buckets[min(place + (strategy == SECOND), len(buckets) - 1)]
    if may_cut:
        return buckets[-1]
    raise _too_long(int(prefix.max()), buckets.tolist())


def bucket_of_prompt_with_prefix(
    buckets: torch.Tensor, num_new: int, num_prefix: int, *, block: int = 0, may_cut: bool = False
) -> torch.Tensor:
    """Return the pair of new tokens and tokens of a prefix of a prompt.

    Free columns of the first take tokens of the prefix, which are computed again; with an EAGLE draft, whole blocks.

    Args:
        buckets: pairs [buckets, 2], each number of the first with each of the second.
        num_new: new tokens.
        num_prefix: tokens of the prefix.
        block: tokens of a block if there is an EAGLE draft, which reads one more.
        may_cut: the last bucket also takes what is longer.
    """
    pairs = buckets.tolist()
    if _SMALL_CONTEXT[0] < num_new + num_prefix <= _SMALL_CONTEXT[1] and _WHOLE_PROMPT in pairs:
        return torch.tensor(_WHOLE_PROMPT, dtype=torch.int32)
    prompts, prefixes = (list(dict.fromkeys(pair[axis] for pair in pairs)) for axis in (0, 1))
    num_new += block
    if num_new > prompts[-1] and not may_cut:
        raise _too_long(num_new, pairs)
    prompt = next((one for one in prompts if num_new <= one), prompts[-1])
    free = max(prompt - num_new, 0)
    left = max(num_prefix - (free // block * block if block else free), 0)
    if left > prefixes[-1]:
        raise _too_long(left, pairs)
    return torch.tensor([prompt, next(one for one in prefixes if left <= one)], dtype=torch.int32)


def require_strategy(strategy: str) -> None:
    """Check the name of a strategy."""
    if strategy not in (FIRST, SECOND):
        raise invalid_choice("strategy", strategy, (FIRST, SECOND))


def _too_long(length: int, buckets: Sequence[object]) -> ShapeError:
    return ShapeError(
        f"Input len {length} exceeds largest bucket ({buckets[-1]}).",
        hint="Pass fewer tokens, or larger buckets.",
        length=length,
        buckets=list(buckets),
    )
