"""`torch.compile(backend="neuron")` against eager and Inductor on the CPU: training steps and warm starts."""

from __future__ import annotations

from . import warm_start
from .device import HIDDEN_SIZE, NUM_LAYERS, small_llama, stepping
from .harness import Row, Settings, in_turn, ratio, rows_of


def run(settings: Settings) -> list[Row]:
    """Measure in turn the cost of a process's first step, then steps of compiled models in this one.

    In this order: a core belongs to one process, and this one keeps its core.
    """
    return [*warm_start.run(settings), *_steps(settings)]


def _steps(settings: Settings) -> list[Row]:
    contenders = {
        "neuron, compiled": stepping(small_llama(), "neuron", backend="neuron"),
        "cpu, eager": stepping(small_llama(), "cpu"),
        "cpu, inductor": stepping(small_llama(), "cpu", backend="inductor"),
    }
    figures = in_turn(contenders, settings.rounds)
    note = f"training step of a Llama, {HIDDEN_SIZE} wide, {NUM_LAYERS} layers; model and optimizer compiled"
    ours = figures["neuron, compiled"]
    return [
        *rows_of(figures, "ms", note=note),
        ratio("cpu eager over ours", figures["cpu, eager"], ours, note="bar: at least 1.2"),
        ratio("ours over cpu inductor", ours, figures["cpu, inductor"], note="bar: at most 1.05"),
    ]
