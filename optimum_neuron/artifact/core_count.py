"""How many cores share a program, and which of its weights each of them holds whole."""

from __future__ import annotations

from ..compiler import Program, divided_prompts
from ..core import Choice
from ..weights import Shards
from ..wording import size

ONE_CORE = "default: a model is divided among cores only where tensor_parallel_size asks for it"
"""Why a model runs on one core."""


def core_count(program: Program, shards: Shards) -> Choice[int]:
    """Return the number of cores that share a program, with the memory that each of them has.

    Args:
        program: that of one core.
        shards: its weights that are divided.
    """
    if shards.group_size == 1:
        return Choice(value=1, reason=ONE_CORE)
    part = sum(spec.size_bytes for name, spec in program.weights.items() if name in shards.of_weights)
    whole = sum(spec.size_bytes for name, spec in program.weights.items() if name not in shards.of_weights)
    state = ", and its part of the cache" if program.states else ""
    reason = f"tensor_parallel_size: each core has its part of the divided weights ({size(part)}), all of the others "
    divided = f"; sequence_parallel: {', '.join(graphs)}" if (graphs := divided_prompts(program)) else ""
    return Choice(value=shards.group_size, reason=f"{reason}({size(whole)}){state}{divided}")
