"""Decode: tokens per second at batch 1, greedy, against transformers eager and llama.cpp."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

from optimum_neuron.demo import TokenClock
from optimum_neuron.runtime import recording

from . import contenders
from .harness import Row, Settings, in_turn, ratio, rows_of, seconds

NUM_PROMPT, NUM_NEW = 32, 64


def run(settings: Settings) -> list[Row]:
    """Measure all contenders in turn; the rate counts the tokens after the first."""
    import torch

    ids = torch.randint(100, 10000, (1, NUM_PROMPT), generator=torch.Generator().manual_seed(0))
    compiled = contenders.ours(settings.model, settings.sequence_length)
    measured: dict[str, Callable[[], float]] = {
        "ours, bf16": functools.partial(tokens_per_s, compiled, ids),
        "transformers eager, fp32": functools.partial(tokens_per_s, contenders.eager(settings.model, "float32"), ids),
        "transformers eager, bf16": functools.partial(tokens_per_s, contenders.eager(settings.model, "bfloat16"), ids),
    }
    if contenders.has_llama_cpp():
        engine = contenders.llama_cpp(settings.model, settings.sequence_length)
        measured["llama.cpp, bf16"] = functools.partial(llama_cpp_tokens_per_s, engine, ids[0].tolist())
    rates = in_turn(measured, settings.rounds)
    rows = rows_of(rates, "token/s", note=f"{NUM_NEW - 1} tokens after a prompt of {NUM_PROMPT} and the first token")
    ours = rates["ours, bf16"]
    eager = [
        max(pair) for pair in zip(rates["transformers eager, fp32"], rates["transformers eager, bf16"], strict=True)
    ]
    rows.append(ratio("ours over transformers eager in its better dtype", ours, eager, note="bar: 1.8"))
    if "llama.cpp, bf16" in rates:
        rows.append(ratio("ours over llama.cpp", ours, rates["llama.cpp, bf16"], note="bar: 1.05"))
    rows += rows_of({"a token of `generate` without its step": _overheads_ms(compiled, ids)}, "ms", note="bar: 0.3")
    return rows + bandwidth(compiled, settings)


def tokens_per_s(model, ids) -> float:  # type: ignore[no-untyped-def]
    import torch

    # No end token: a lower limit on new tokens would add a pass over the logits to every step.
    model.generation_config.eos_token_id = None
    options = {"max_new_tokens": NUM_NEW, "do_sample": False, "pad_token_id": 2}
    with torch.no_grad():
        clock = TokenClock()
        model.generate(ids, attention_mask=torch.ones_like(ids), streamer=clock, **options)
        return clock.tokens_per_s


def _overheads_ms(compiled, ids) -> list[float]:  # type: ignore[no-untyped-def]
    """Time from the end of each decode step to the begin of the next."""
    with recording() as executions:
        tokens_per_s(compiled, ids)
    steps = [execution for _, execution in executions if execution.graph.startswith("decode_")]
    return [(after.started_ns - before.ended_ns) / 1e6 for before, after in itertools.pairwise(steps)]


def llama_cpp_tokens_per_s(engine, ids: list[int]) -> float:  # type: ignore[no-untyped-def]
    engine.reset()
    stream = engine.generate(ids, temp=0.0, repeat_penalty=1.0)
    next(stream)
    return (NUM_NEW - 1) / seconds(lambda: [next(stream) for _ in range(NUM_NEW - 1)])


def bandwidth(compiled, settings: Settings) -> list[Row]:  # type: ignore[no-untyped-def]
    """Bytes read by one step, divided by its time, against a plain sum of the same threads."""
    import torch

    state = compiled.loaded.take_state()
    token, position = torch.tensor([[5]]), torch.tensor([[settings.sequence_length // 2]])
    graph = f"decode_{compiled.neuron_config.decode_buckets[0]}"
    large = torch.ones(64 * 1024 * 1024)
    figures = in_turn(
        {
            "step": lambda: seconds(lambda: compiled.loaded.run(graph, [token, position], state)),
            "sum": lambda: seconds(large.sum),
        },
        settings.rounds * 5,
    )
    compiled.loaded.give_back(state)
    need = compiled.loaded.need
    rows = rows_of({"one decode step of the program alone": [1e3 * s for s in figures["step"]]}, "ms")
    achieved = [(need.weights + need.kv_cache) / s / 1e9 for s in figures["step"]]
    measured = [large.numel() * 4 / s / 1e9 for s in figures["sum"]]
    rows += rows_of({"read by a decode step": achieved, "read by torch.sum over 256 MiB": measured}, "GB/s")
    rows.append(ratio("share of the measured memory bandwidth", achieved, measured))
    return rows
