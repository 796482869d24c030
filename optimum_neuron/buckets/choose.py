"""Which of the compiled sizes holds an input.

choose_bucket(20, (16, 64), measure="20 tokens", asked="a prompt of 20 tokens", do="shorten the prompt")
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core import Choice, Rejected
from ..errors import ShapeError, refusal


def choose_bucket(size: int, buckets: Sequence[int], *, measure: str, asked: str, do: str) -> Choice[int]:
    """The smallest bucket that holds an input, and why.

    Args:
        size: how large the input is.
        buckets: sizes that were compiled, rising.
        measure: the size in words.
        asked: the input in words, for the refusal.
        do: what helps where it is too large.

    Raises:
        ShapeError: it is larger than every bucket; they are listed.
    """
    for bucket in buckets:
        if size <= bucket:
            smaller = [other for other in buckets if other < bucket]
            return Choice(
                value=bucket,
                reason=f"smallest bucket that holds {measure}",
                rejected=tuple(Rejected(candidate=str(b), reason=f"less than {measure}") for b in smaller),
            )
    raise ShapeError(
        refusal(
            asked=asked,
            found=f"the largest bucket holds {buckets[-1]}; buckets are {', '.join(map(str, buckets))}",
            why="what is smaller than a bucket is padded, what is larger does not fit",
            do=do,
        )
    )
