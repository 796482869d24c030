"""The plan of a compiled decoder: which of its own graphs a request would run."""

from __future__ import annotations

import re

from ..compiler.ir import Program
from ..core import AutoCast, Choice
from .decoders import DecoderRequest
from .serving import ServingPlan
from .stacks import STACKS
from .work.graph import work_of_program

_GRAPH = re.compile(r"(prefill|decode)_(\d+)$")


def serving_plan_of(program: Program, request: DecoderRequest, *, auto_cast: AutoCast) -> Choice[ServingPlan] | None:
    """Choose the prompt and the decode bucket of a request; None where the program is no decoder."""
    buckets: dict[str, dict[int, str]] = {"prefill": {}, "decode": {}}
    for name in program.graphs:
        if match := _GRAPH.match(name):
            buckets[match.group(1)][int(match.group(2))] = name
    if not buckets["prefill"] or not buckets["decode"]:
        return None
    length = min(request.sequence_length or max(buckets["decode"]), max(buckets["decode"]))
    output = min(request.output_length or max(length // 2, 1), length - 1)
    prompt = _smallest(buckets["prefill"], length - output)
    slots = _smallest(buckets["decode"], length - output + output // 2 + 1)
    decode = program.graphs[buckets["decode"][slots]]
    rows = max(spec.shape[0] for spec in decode.inputs.values() if spec.shape)
    plan = ServingPlan(
        stack=STACKS["nxd-inference"],
        prefill=work_of_program(program, buckets["prefill"][prompt], auto_cast=auto_cast),
        num_prefills=1,
        decode=work_of_program(program, buckets["decode"][slots], auto_cast=auto_cast),
        batch_size=rows,
        concurrency=min(request.concurrency or rows, rows),
        input_length=length - output,
        output_length=output,
    )
    reason = f"its own graphs prefill_{prompt} and decode_{slots}, {rows} rows, {length - output} prompt tokens"
    return Choice(value=plan, reason=f"{reason} and {output} output tokens")


def _smallest(buckets: dict[int, str], tokens: int) -> int:
    return min((size for size in buckets if size >= tokens), default=max(buckets))
