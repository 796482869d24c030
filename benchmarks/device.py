"""The torch device against the CPU, with and without queues: a small operator, a training step of a small Llama."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .harness import Row, Settings, in_turn, ratio, rows_of, seconds

NUM_ELEMENTS = 128
NUM_CALLS = 20_000
HIDDEN_SIZE, NUM_LAYERS = 256, 4
BATCH_SIZE, NUM_TOKENS, NUM_STEPS = 4, 64, 5


def run(settings: Settings) -> list[Row]:
    """Measure in turn: the operator on one thread, the training step on all of them."""
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = _small_operator(settings)
    finally:
        torch.set_num_threads(num_threads)
    return [*rows, *_training_step(settings), *_adaptive_eager(settings)]


def _small_operator(settings: Settings) -> list[Row]:
    import torch

    def adding(device: str) -> Callable[[], float]:
        x = torch.zeros(NUM_ELEMENTS, device=device)

        def calls() -> None:
            for _ in range(NUM_CALLS):
                torch.add(x, x)

        return lambda: 1e6 * seconds(calls) / NUM_CALLS

    names = {device: f"add of {NUM_ELEMENTS} elements, {device}" for device in ("neuron", "cpu")}
    figures = in_turn({name: adding(device) for device, name in names.items()}, settings.rounds)
    extra = [a - b for a, b in zip(figures[names["neuron"]], figures[names["cpu"]], strict=True)]
    return [
        *rows_of(figures, "us", note="one thread"),
        *rows_of({"add, neuron over cpu": extra}, "us", note="difference, round by round; bar: at most 1.2"),
    ]


def _training_step(settings: Settings) -> list[Row]:
    contenders = {device: stepping(small_llama(), device, fused=True) for device in ("neuron", "cpu")}
    figures = in_turn(contenders, settings.rounds)
    what = f"training step of a Llama, {HIDDEN_SIZE} wide, {NUM_LAYERS} layers"
    note = f"fused AdamW, {BATCH_SIZE} x {NUM_TOKENS} tokens"
    return [
        *rows_of({f"{what}, {device}": values for device, values in figures.items()}, "ms", note=note),
        ratio("training step, neuron over cpu", figures["neuron"], figures["cpu"], note="bar: at most 1.05"),
    ]


def _adaptive_eager(settings: Settings) -> list[Row]:
    import torch

    x = torch.zeros(NUM_ELEMENTS, device="neuron")
    steps = stepping(small_llama(), "neuron", fused=True)

    def calls() -> None:
        for _ in range(NUM_CALLS):
            torch.add(x, x)
        torch.neuron.synchronize()

    def switched(enabled: bool, measure: Callable[[], float]) -> Callable[[], float]:
        def measured() -> float:
            with torch.neuron.adaptive_eager(enabled):
                return measure()

        return measured

    rows = []
    for what, unit, measure in (
        (f"add of {NUM_ELEMENTS} elements", "us", lambda: 1e6 * seconds(calls) / NUM_CALLS),
        ("training step", "ms", steps),
    ):
        plain, queued = f"{what}, plain eager", f"{what}, adaptive eager"
        figures = in_turn({plain: switched(False, measure), queued: switched(True, measure)}, settings.rounds)
        rows += rows_of(figures, unit, note="one thread calls, another computes")
        rows.append(ratio(f"{what}, adaptive over plain", figures[queued], figures[plain]))
    return rows


def small_llama() -> Any:
    """A Llama with random weights, the same each time."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=HIDDEN_SIZE,
        intermediate_size=4 * HIDDEN_SIZE,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=NUM_TOKENS,
    )
    return AutoModelForCausalLM.from_config(config)


def stepping(model: Any, device: str, *, backend: str | None = None, fused: bool | None = None) -> Callable[[], float]:
    """A function that takes training steps and returns the milliseconds of one.

    Args:
        model: Model to train.
        device: where.
        backend: compiles the model and the optimizer.
        fused: implementation of AdamW; None leaves the choice to torch, which differs between devices.
    """
    import torch

    own = model.to(device).train()
    optimizer = torch.optim.AdamW(own.parameters(), lr=1e-3, fused=fused)
    loss_of, update = own, optimizer.step
    if backend is not None:
        loss_of, update = torch.compile(own, backend=backend), torch.compile(optimizer.step, backend=backend)
    ids = torch.randint(0, 1024, (BATCH_SIZE, NUM_TOKENS), generator=torch.Generator().manual_seed(0)).to(device)

    def steps() -> None:
        for _ in range(NUM_STEPS):
            optimizer.zero_grad()
            loss_of(input_ids=ids, labels=ids).loss.backward()
            update()

    return lambda: 1e3 * seconds(steps) / NUM_STEPS
