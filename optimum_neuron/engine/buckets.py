"""Chooses the compiled size that fits an input: the only place that chooses a bucket.

choose_bucket(20, (16, 64), subject="The prompt", measure="20 tokens", hint="Shorten it.").value    # 64
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..base.core import Choice, Rejected
from ..errors import ShapeError

MOST_PADDING = 8
"""A chunk has at most so many times the tokens that it is used for, unless it is the shortest one."""


def smallest_bucket(size: int, buckets: Iterable[int]) -> int | None:
    """Return the smallest bucket that holds `size`, or None if every bucket is smaller.

    Example:
        ```python
        from optimum_neuron.engine.buckets import smallest_bucket

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
        message = f"{subject} has {measure}, but the largest compiled bucket holds {buckets[-1]} (buckets: {sizes})."
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
    longest = max((length for length in fitting if length <= MOST_PADDING * num_left), default=1)
    return longest if longest > 1 else min(fitting, default=1)
