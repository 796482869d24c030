"""The plan of a compiled model that generates: the graphs that a request would run.

A decoder has prefill and decode graphs; an encoder-decoder encodes a source before them.
"""

from __future__ import annotations

import functools

from ..compiler import Program
from ..core import AutoCast, Choice
from ..errors import ConfigError
from .decoders import DecoderRequest
from .serving import ServingPlan
from .stacks import STACKS
from .work import work_of_program

SERVED_AS = STACKS["nxd-inference"]
"""Serving stack of compiled programs that generate: the one with this package's buckets and batches."""
DEFAULT_OUTPUT_LENGTH = 128
"""Tokens that an encoder-decoder writes, unless asked otherwise."""


def serving_plan_of(program: Program, request: DecoderRequest, *, auto_cast: AutoCast) -> Choice[ServingPlan] | None:
    """Choose the graphs of a request; None where the program does not generate."""
    from ..engine import smallest_bucket  # imports torch

    if not generates(program):
        return None
    prefill, decode = program.by_size("prefill"), program.by_size("decode")
    if encoders := program.by_size("encode"):
        prompt = max(encoders)
        output = request.output_length or DEFAULT_OUTPUT_LENGTH
        encode, first, step = encoders[prompt], prefill[max(prefill)], decode[max(decode)]
    else:
        longest = max(decode)
        length = request.sequence_length or longest
        output = request.output_length or max(length // 2, 1)
        if not output < length <= longest:
            message = f"sequence_length={length}, output_length={output} does not fit the compiled {longest} tokens."
            hint = f"Pass a sequence_length of at most {longest}, and an output_length below it."
            raise ConfigError(message, hint=hint, sequence_length=length, output_length=output, compiled=longest)
        prompt = length - output
        encode, first = None, prefill[smallest_bucket(prompt, prefill) or max(prefill)]
        step = decode[smallest_bucket(prompt + output // 2 + 1, decode) or longest]
    rows = max(spec.shape[0] for spec in program.graphs[step].inputs.values() if spec.shape)
    arriving = min(request.concurrency or rows, rows)
    # With tables of blocks, prompts are read one after the other, in chunks.
    chunk = None if encoders else chunk_size(program, first)
    names = [name for name in (encode, first) if name is not None]
    work_of = functools.partial(work_of_program, program, auto_cast=auto_cast)
    plan = ServingPlan(
        stack=SERVED_AS,
        encode=None if encode is None else work_of(encode),
        prefill=work_of(first),
        num_prefills=1 if chunk is None else arriving * -(-prompt // chunk),
        decode=work_of(step),
        batch_size=rows,
        concurrency=arriving,
        input_length=prompt,
        output_length=output,
    )
    reason = f"its own graphs {', '.join(names)} and {step}: {rows} rows, {prompt} tokens or frames that are read"
    return Choice(value=plan, reason=f"{reason}, {output} output tokens")


def chunk_size(program: Program, prefill: str) -> int | None:
    """Return how many tokens of one prompt a graph reads; None if it reads whole prompts of all rows."""
    inputs = program.graphs[prefill].inputs
    return inputs["input_ids"].shape[1] if "block_table" in inputs else None


def generates(program: Program) -> bool:
    """Return whether a program has a prefill and a decode graph."""
    return bool(program.by_size("prefill") and program.by_size("decode"))
