"""The plan of a compiled model that generates: which of its own graphs a request would run.

A decoder has prompts and steps, `prefill_<n>` and `decode_<n>`; an encoder-decoder reads with `encode_<n>`, begins with
`prefill_<n>` and goes on with `decode`.
"""

from __future__ import annotations

import re

from ..compiler.ir import Program
from ..core import AutoCast, Choice
from ..errors import ConfigError
from .decoders import DecoderRequest
from .serving import ServingPlan
from .stacks import STACKS
from .work.graph import work_of_program

_GRAPH = re.compile(r"(encode|prefill|decode)(?:_(\d+))?$")
SERVED_AS = STACKS["nxd-inference"]
"""Serving stack of compiled programs that generate: the one with this package's buckets and batches."""
DEFAULT_OUTPUT_LENGTH = 128
"""Tokens that an encoder-decoder writes, unless asked otherwise."""


def serving_plan_of(program: Program, request: DecoderRequest, *, auto_cast: AutoCast) -> Choice[ServingPlan] | None:
    """Choose the graphs of a request; None where the program does not generate."""
    if not generates(program):
        return None
    buckets = buckets_of(program)
    if buckets["encode"]:
        read = max(buckets["encode"])
        output = request.output_length or DEFAULT_OUTPUT_LENGTH
        encode, first = buckets["encode"][read], buckets["prefill"][max(buckets["prefill"])]
        step, prompt = buckets["decode"][max(buckets["decode"])], read
    else:
        longest = max(buckets["decode"])
        length = request.sequence_length or longest
        output = request.output_length or max(length // 2, 1)
        if not output < length <= longest:
            raise ConfigError(
                f"sequence_length={length} with output_length={output} does not fit {longest} compiled tokens.",
                hint=f"Pass a sequence_length of at most {longest}, and an output_length below it.",
                sequence_length=length,
                output_length=output,
                limit=longest,
            )
        prompt = length - output
        encode, first = None, buckets["prefill"][_smallest(buckets["prefill"], prompt)]
        step = buckets["decode"][_smallest(buckets["decode"], prompt + output // 2 + 1)]
    rows = max(spec.shape[0] for spec in program.graphs[step].inputs.values() if spec.shape)
    names = [name for name in (encode, first) if name is not None]
    plan = ServingPlan(
        stack=SERVED_AS,
        encode=None if encode is None else work_of_program(program, encode, auto_cast=auto_cast),
        prefill=work_of_program(program, first, auto_cast=auto_cast),
        num_prefills=1,
        decode=work_of_program(program, step, auto_cast=auto_cast),
        batch_size=rows,
        concurrency=min(request.concurrency or rows, rows),
        input_length=prompt,
        output_length=output,
    )
    reason = f"its own graphs {', '.join(names)} and {step}: {rows} rows, {prompt} tokens or frames that are read"
    return Choice(value=plan, reason=f"{reason}, {output} output tokens")


def generates(program: Program) -> bool:
    """Whether a program has a graph for prompts and one for steps."""
    buckets = buckets_of(program)
    return bool(buckets["prefill"] and buckets["decode"])


def buckets_of(program: Program) -> dict[str, dict[int, str]]:
    """Names of the graphs of a program by what they do and by size."""
    buckets: dict[str, dict[int, str]] = {"encode": {}, "prefill": {}, "decode": {}}
    for name in program.graphs:
        if match := _GRAPH.match(name):
            buckets[match.group(1)][int(match.group(2) or 0)] = name
    return buckets


def _smallest(buckets: dict[int, str], tokens: int) -> int:
    return min((size for size in buckets if size >= tokens), default=max(buckets))
