"""How many cores a program runs on, and how much of its weights each of them has."""

from __future__ import annotations

from ..base.core import Choice
from ..base.wording import size
from ..compiler import Program, divided_prompts
from ..compiler.passes import stage_programs
from ..weights import Shards

ONE_CORE = "default: a model is divided among cores only where tensor_parallel_size or pipeline_parallel_size says so"
"""Why a model runs on one core."""


def core_count(program: Program, shards: Shards) -> Choice[int]:
    """Return the number of cores that a program runs on, with the memory that each of them has.

    Args:
        program: that of one core of each stage.
    """
    stages, reasons = stage_programs(program), []
    totals = [sum(spec.size_bytes for spec in stage.weights.values()) for stage in stages]
    fullest = stages[totals.index(max(totals))].weights
    if len(stages) > 1:
        each = f"a core has {size(min(totals))} to {size(max(totals))} of weights, and the cache of its layers"
        reasons.append(f"pipeline_parallel_size: {len(stages)} stages; {each}")
    if shards.group_size > 1:
        part = sum(spec.size_bytes for name, spec in fullest.items() if name in shards.of_weights)
        state = ", and its part of the cache" if program.states else ""
        where = "each core has" if len(stages) == 1 else "each core of the fullest stage has"
        reasons.append(
            f"tensor_parallel_size: {where} its part of the divided weights ({size(part)}), all of the others "
            f"({size(max(totals) - part)}){state}"
        )
    if graphs := divided_prompts(program):
        reasons.append(f"sequence_parallel: {', '.join(graphs)}")
    return Choice(value=len(stages) * shards.group_size, reason="; ".join(reasons) or ONE_CORE)
