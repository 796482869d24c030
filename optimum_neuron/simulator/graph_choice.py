"""The graphs of a compiled model that a request runs, and the padding of its prompt.

    graphs = choose_graphs(program, request)
    graphs.prefill, graphs.padding.share

Buckets are chosen as the engine does. It times nothing.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .request import EstimateRequest
from .stacks import Padding, choose_lengths, steps_by_bucket

if TYPE_CHECKING:
    from ..compiler import Program

DEFAULT_OUTPUT_LENGTH = 128
"""Tokens that an encoder-decoder writes, unless a request has an output length."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphChoice:
    """Graphs of a request."""

    encode: str | None = None
    """Graph of the encoder, where the model has one."""
    prefill: str
    decode: str
    steps: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)
    """Number of steps of an answer by their graphs; empty where all are `decode`."""
    padding: Padding
    output_length: int
    num_chunks: int = 0
    """Chunks of the prompt, which are read one after the other; 0 if one prefill reads the prompts of all rows."""
    extends: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)
    """Calls that read the rest of prompts that are longer than `prefill`, by their graphs."""
    prefill_end: str | None = None
    """Graph of the last chunk, if there are several; those before it are whole."""


def choose_graphs(program: Program, request: EstimateRequest) -> GraphChoice:
    """Choose the smallest compiled graphs that hold a request."""
    if request.prefix_hit_rate is not None and not shares_prefixes(program):
        raise no_prefix_cache(request.prefix_hit_rate)
    return _of_source(program, request) if program.by_size("encode") else _of_prompt(program, request)


def no_prefix_cache(rate: float) -> ConfigError:
    """Return the error for hits in the prefix cache of a model that has none."""
    message = f"prefix_hit_rate={rate} has no effect: the model has no prefix cache."
    hint = "Add continuous_batching, or remove it. Models with recurrent states share no prefixes."
    return ConfigError(message, hint=hint, option="prefix_hit_rate", value=rate)


def _of_source(program: Program, request: EstimateRequest) -> GraphChoice:
    """Graphs of a model with an encoder, whose prompt is a source."""
    from ..engine import smallest_bucket

    encoders, prefill, decode = (program.by_size(role) for role in ("encode", "prefill", "decode"))
    longest = max(encoders)
    tokens = request.input_length or longest
    if (size := smallest_bucket(tokens, encoders)) is None:
        message = f"input_length={tokens} does not fit the compiled {longest} tokens or frames of a source."
        hint = f"Pass an input_length of at most {longest}."
        raise ConfigError(message, hint=hint, input_length=tokens, compiled=longest)
    return GraphChoice(
        encode=encoders[size],
        prefill=prefill[max(prefill)],
        decode=decode[max(decode)],
        padding=Padding(input_tokens=tokens, prefill_tokens=size, decode_slots=None),
        output_length=request.output_length or DEFAULT_OUTPUT_LENGTH,
    )


def _of_prompt(program: Program, request: EstimateRequest) -> GraphChoice:
    """Graphs of a decoder."""
    from ..engine import smallest_bucket

    prefill, decode = program.by_size("prefill"), program.by_size("decode")
    longest = max(decode)
    length = request.sequence_length or longest
    if length > longest:
        message = f"sequence_length={length} does not fit the compiled {longest} tokens."
        raise ConfigError(
            message, hint=f"Pass a sequence_length of at most {longest}.", sequence_length=length, compiled=longest
        )
    lengths = choose_lengths(length, request.input_length, request.output_length, limit=longest)
    first = smallest_bucket(lengths.prompt, prefill) or max(prefill)
    slots = smallest_bucket(lengths.prompt + lengths.answer // 2 + 1, decode) or longest
    counts = steps_by_bucket(lengths.prompt, lengths.answer, lambda held: smallest_bucket(held, decode) or longest)
    computed, cached, chunks, reads = first, 0, [], prefill[first]
    if "block_table" in program.graphs[reads].inputs:
        cached = _num_cached(program, lengths.prompt, request.prefix_hit_rate or 0.0)
        chunks = chunk_graphs(program, lengths.prompt, start=cached)
        computed = sum(program.graphs[name].inputs["input_ids"].shape[1] for name in chunks)
        reads = chunks[0] if len(chunks) == 1 else reads
    rest = [] if chunks else _rest(program, lengths.prompt, read=first, num_slots=longest)
    computed += sum(program.graphs[name].inputs["input_ids"].shape[1] for name in rest)
    return GraphChoice(
        prefill=reads,
        extends=collections.Counter(rest),
        prefill_end=chunks[-1] if len(chunks) > 1 else None,
        decode=decode[slots],
        steps={decode[size]: count for size, count in counts.items()},
        padding=Padding(input_tokens=lengths.prompt, prefill_tokens=computed, decode_slots=slots, cached_tokens=cached),
        output_length=lengths.answer,
        num_chunks=len(chunks),
    )


def _rest(program: Program, num_tokens: int, *, read: int, num_slots: int) -> list[str]:
    """Return the entry points that read prompts behind their first tokens, as `engine/decoder.py` does."""
    from ..engine import chunk_length

    graphs, names = program.by_size("extend"), []
    step = program.by_size("decode")[num_slots]
    while read < num_tokens:
        length = chunk_length(graphs, num_left=num_tokens - read, room=num_slots - read)
        names.append(graphs.get(length, step))
        read += length
    return names


def chunk_graphs(program: Program, num_tokens: int, *, start: int = 0) -> list[str]:
    """Return the entry points that read a prompt from `start` on in a pool of blocks; the last may be a shorter one."""
    from ..engine import smallest_bucket

    graphs, names = program.chunks("prefill"), []
    for begin in range(start, num_tokens, max(graphs)):
        end = min(begin + max(graphs), num_tokens)
        length = smallest_bucket(end - begin, graphs)
        assert length is not None, "no chunk is longer than the longest"
        slots = smallest_bucket(end, graphs[length])
        assert slots is not None, "callers check that the cache holds the prompt"
        names.append(graphs[length][slots])
    return names


def _num_cached(program: Program, num_prompt: int, rate: float) -> int:
    """Return the prompt tokens that are found in the cache: whole chunks, and never the last token."""
    chunk_size = max(program.chunks("prefill"))
    keys = next((spec.shape for name, spec in program.states.items() if name.startswith("key_cache")), None)
    step = chunk_size if keys is None else math.lcm(chunk_size, keys[-1])
    num_found = min(int(rate * num_prompt), num_prompt - 1)
    return num_found - num_found % step


def shares_prefixes(program: Program) -> bool:
    """Return whether requests of a program go on within the blocks of others: it has no state but the blocks."""
    keys = [spec.shape[0] for name, spec in program.states.items() if name.startswith("key_cache")]
    paged = any("block_table" in graph.inputs for graph in program.graphs.values())
    return paged and bool(keys) and all(spec.shape[0] == keys[0] for spec in program.states.values())
