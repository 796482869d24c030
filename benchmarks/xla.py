"""The device "xla" against the device "neuron" in eager mode: what recording costs an operator, and a training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .device import NUM_ELEMENTS
from .harness import Row, Settings, in_turn, ratio, rows_of, seconds

NUM_CALLS, NUM_LAPS = 200, 100
"""Operators of a graph, and graphs of a turn. The fastest graph of a turn counts: others may wait for the machine."""
SIZES = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9}
"""Of SmolLM2-135M; weights are random."""
NUM_TOKENS, NUM_STEPS = 128, 1


def run(settings: Settings) -> Iterator[Row]:
    """Measure in turn, on one thread."""
    import torch

    from optimum_neuron import xla

    xla.enable()
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from _operator(settings)
        yield from _training_step(settings)
    finally:
        torch.set_num_threads(num_threads)


def _operator(settings: Settings) -> list[Row]:
    import torch

    def adding(device: str) -> Callable[[], float]:
        x = torch.zeros(NUM_ELEMENTS, device=device)

        def calls() -> None:
            for _ in range(NUM_CALLS):
                torch.add(x, x)

        def lap() -> float:
            took = seconds(calls)
            _end_step(device)
            return 1e6 * took / NUM_CALLS

        lap()
        return lambda: min(lap() for _ in range(NUM_LAPS))

    figures = in_turn({device: adding(device) for device in ("xla", "neuron", "cpu")}, settings.rounds)
    what = f"add of {NUM_ELEMENTS} elements"
    extra = [ours - plain for ours, plain in zip(figures["xla"], figures["neuron"], strict=True)]
    return [
        *rows_of({f"{what}, {name}": values for name, values in figures.items()}, "us", note="xla: bar at most 2.5"),
        *rows_of({"add, xla over neuron": extra}, "us", note="recording, round by round; bar: at most 1.0"),
    ]


def _training_step(settings: Settings) -> list[Row]:
    figures = in_turn({device: _stepping(device) for device in ("xla", "neuron")}, settings.rounds)
    what = "training step of a Llama as large as SmolLM2-135M"
    rows = rows_of({f"{what}, {name}": values for name, values in figures.items()}, "ms", note=f"{NUM_TOKENS} tokens")
    return [*rows, ratio("speed of the step, xla over neuron", figures["neuron"], figures["xla"], note="bar: 0.9")]


def _stepping(device: str) -> Callable[[], float]:
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=49152, num_key_value_heads=3, tie_word_embeddings=True, **SIZES)
    model = AutoModelForCausalLM.from_config(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, 49152, (1, NUM_TOKENS)).to(device)

    def steps() -> None:
        for _ in range(NUM_STEPS):
            optimizer.zero_grad()
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            _end_step(device)

    steps()
    steps()
    return lambda: 1e3 * seconds(steps) / NUM_STEPS


def _end_step(device: str) -> None:
    from optimum_neuron import xla

    if device == "xla":
        xla.sync()
