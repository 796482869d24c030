"""Chooses the compiled size that fits an input: the only place that chooses a bucket.

choose_bucket(20, (16, 64), subject="The prompt", measure="20 tokens", hint="Shorten it.").value    # 64
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..core import Choice, Rejected
from ..errors import ShapeError


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
        size: size of the input.
        buckets: compiled sizes, rising.
        subject: the input in words, for example "The prompt".
        measure: its size in words, for example "20 tokens".
        hint: Remedy if it is too large.

    Raises:
        ShapeError: it is larger than every bucket; they are listed.
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
