"""Quantized weights: tokens per second at batch 1, greedy, against llama.cpp on weights of as many bits."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable

from . import contenders
from .decode import NUM_NEW, NUM_PROMPT, bandwidth, llama_cpp_tokens_per_s, tokens_per_s
from .harness import Row, Settings, in_turn, ratio, rows_of

PAIRS = {"int8": ("Q8_0", 1.1), "int4": ("Q4_0", 1.0)}
"""Scheme to the GGML type that it is compared with, and the ratio that it has to reach."""


def run(settings: Settings) -> list[Row]:
    """Measure all contenders in turn; the rate counts the tokens after the first."""
    import torch

    ids = torch.randint(100, 10000, (1, NUM_PROMPT), generator=torch.Generator().manual_seed(0))
    schemes = (None, "int8", "fp8", "int4")
    compiled = {
        scheme: contenders.ours(settings.model, settings.sequence_length, quantization=scheme, num_cores=1)
        for scheme in schemes
    }
    measured: dict[str, Callable[[], float]] = {
        f"ours, {scheme or 'bf16'}": functools.partial(tokens_per_s, model, ids) for scheme, model in compiled.items()
    }
    if contenders.has_llama_cpp():
        for weights in ("BF16", *(weights for weights, _ in PAIRS.values())):
            if not contenders.llama_cpp_runs(settings.model, weights):
                print(f"llama.cpp ends its process with {weights} on this CPU: left out", file=sys.stderr)
                continue
            engine = contenders.llama_cpp(settings.model, settings.sequence_length, weights)
            measured[f"llama.cpp, {weights.lower()}"] = functools.partial(
                llama_cpp_tokens_per_s, engine, ids[0].tolist()
            )
    rates = in_turn(measured, settings.rounds)
    rows = rows_of(rates, "token/s", note=f"{NUM_NEW - 1} tokens after a prompt of {NUM_PROMPT} and the first token")
    for scheme, (weights, bar) in PAIRS.items():
        ours = rates[f"ours, {scheme}"]
        rows.append(ratio(f"{scheme} over bf16", ours, rates["ours, bf16"]))
        if (theirs := rates.get(f"llama.cpp, {weights.lower()}")) is not None:
            rows.append(ratio(f"ours, {scheme} over llama.cpp, {weights.lower()}", ours, theirs, note=f"bar: {bar}"))
    for scheme in PAIRS:
        figures = bandwidth(compiled[scheme], settings)
        rows += [dataclasses.replace(row, what=f"{scheme}: {row.what}") for row in figures]
    return rows
