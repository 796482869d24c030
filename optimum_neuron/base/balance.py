"""Divide a sequence into parts of about equal work, in order; what the work is, callers know.

>>> stage_of_each([1, 1, 2, 2, 2], 2)
[0, 0, 0, 1, 1]
"""

from __future__ import annotations

from collections.abc import Sequence


def stage_of_each(amounts: Sequence[float], num_stages: int) -> list[int]:
    """Return the stage of each item, from 0; fewer stages where there are fewer items.

    Args:
        amounts: work of each item.
        num_stages: stages wanted.
    """
    count, total, done = min(num_stages, len(amounts)), sum(amounts) or 1, 0.0
    stages: list[int] = []
    for index, amount in enumerate(amounts):
        stage = stages[-1] if stages else 0
        left, items = count - 1 - stage, len(amounts) - index
        is_full = done + amount / 2 >= total * (stage + 1) / count or items == left
        stages.append(stage + 1 if stages and left and is_full else stage)
        done += amount
    return stages
