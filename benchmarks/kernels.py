"""NKI kernels as streams: the time to trace one, to run it as a stream and as Python, and to analyze it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .harness import Row, Settings, in_turn, ratio, rows_of, seconds

NUM_TOKENS, WIDTH, SIZE = 4096, 128, 2048
"""Flash attention of one head, and a product of square matrices in float32."""


def run(settings: Settings) -> list[Row]:
    """Measure flash attention and the tiled product."""
    import torch

    from models.kernels.matmul import whole_rows
    from optimum_neuron.nki.kernels import flash_attention

    states = (torch.randn(1, WIDTH, NUM_TOKENS), torch.randn(1, WIDTH, NUM_TOKENS), torch.randn(1, NUM_TOKENS, WIDTH))
    matrices = (torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE))
    rows = _rows(f"flash attention {NUM_TOKENS}x{WIDTH}", flash_attention, states, settings.rounds)
    return rows + _rows(f"matmul {SIZE}x{SIZE}x{SIZE}", whole_rows, matrices, settings.rounds)


def _rows(name: str, kernel: Any, inputs: tuple[Any, ...], rounds: int) -> list[Row]:
    from optimum_neuron.nki import analyze_stream, streams

    stream = streams.trace(kernel, inputs, {}).stream
    calls: dict[str, Callable[[], object]] = {
        "kernel": functools.partial(kernel, *inputs),
        "stream": functools.partial(streams.run, stream, inputs),
        "trace": functools.partial(streams.trace, kernel, inputs, {}),
        "analysis of the stream": functools.partial(analyze_stream, stream),
    }
    timed = {f"{name}: {what}": functools.partial(seconds, call) for what, call in calls.items()}
    times = in_turn(timed, rounds)
    note = f"{stream.num_steps} instructions stored, {stream.num_instructions} run; larger is faster"
    return [
        *rows_of(times, "s"),
        ratio(f"{name}: kernel over stream", times[f"{name}: kernel"], times[f"{name}: stream"], note=note),
    ]
