"""Several problems of one set of arguments as one error."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import NeuronError


def raise_together(problems: Sequence[NeuronError]) -> None:
    """Raise all problems as one error of the class of the first; return if there are none.

    Args:
        problems: their messages and hints become lines; `details["problems"]` has the parts of each.
    """
    if problems:
        raise type(problems[0])("\n".join(map(str, problems)), problems=[problem.to_dict() for problem in problems])
