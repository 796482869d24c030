"""Caches in 8 bits: time of a decode step at batch 1 behind 1,000 and 4,000 tokens, against the cache in bfloat16."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import contenders
from .harness import Row, Settings, in_turn, ratio, rows_of, seconds

NUM_SLOTS = 4096
POSITIONS = (1000, 4000)
STEPS = 5
"""Steps of each round, by which a figure depends less on what else the machine does."""


def run(settings: Settings) -> list[Row]:
    """Measure all caches in turn, with random keys and values."""
    dtypes = ("auto", "int8", "fp8")
    models = {dtype: _compiled(settings.model, dtype) for dtype in dtypes}
    states = {dtype: _filled(model.loaded.take_state()) for dtype, model in models.items()}
    rows = []
    for position in POSITIONS:
        measured: dict[str, Callable[[], float]] = {
            f"{'bf16' if dtype == 'auto' else dtype}, step behind {position} tokens": functools.partial(
                _step_ms, model, position, states[dtype]
            )
            for dtype, model in models.items()
        }
        times = in_turn(measured, settings.rounds)
        rows += rows_of(times, "ms")
        plain, *others = times.items()
        rows += [ratio(f"bf16 over {name}", plain[1], own, note="larger is faster") for name, own in others]
    return rows


def _compiled(model: str, kv_cache_dtype: str) -> Any:
    from optimum_neuron import NeuronModelForCausalLM

    return NeuronModelForCausalLM.from_pretrained(
        contenders.folder(model),
        export=True,
        sequence_length=NUM_SLOTS,
        prefill_buckets=(128,),  # prompts are not measured
        decode_buckets=(NUM_SLOTS,),
        torch_dtype="bfloat16",
        kv_cache_dtype=kv_cache_dtype,
        disable_validation=True,
        wait_for_host_code=True,
    )


def _filled(state: list[Any]) -> list[Any]:
    import torch

    for tensor in state:
        if tensor.dtype == torch.float32:  # scales
            tensor.uniform_(0.01, 0.02)
        else:
            tensor.copy_((torch.randn(tensor.shape) * 20).to(tensor.dtype))
    return state


def _step_ms(model: Any, position: int, state: list[Any]) -> float:
    import torch

    inputs = [torch.tensor([[5]]), torch.tensor([[position]])]
    graph = f"decode_{NUM_SLOTS}"
    return 1e3 / STEPS * seconds(lambda: [model.loaded.run(graph, inputs, state) for _ in range(STEPS)])
