"""Shared parts of all benchmarks: rows, medians, and turn-taking. It does not depend on models."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Arguments of every benchmark."""

    rounds: int = 7
    """Times that each contender is measured, in turn."""
    sequence_length: int = 512
    """Tokens of the compiled model."""
    model: str = "smollm2"
    """Checkpoint."""
    optlevel: str = "2"
    """Optimization level of `soak`."""
    batch_size: int | None = None
    """Rows of `families`; None for 1 and 4."""
    models: tuple[str, ...] | None = None
    """Model types of `families`, or models of `diffusion`; None for all."""
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    """Dtypes of `diffusion`."""
    openvino_python: str | None = None
    """Python of an environment with OpenVINO: optimum-intel for `families`, diffusers for `diffusion`."""
    soak_minutes: float = 0
    """Minutes for which the clients of `serve` go on; 0 compares with the engine."""
    quick: bool = False
    """Whether `soak` takes a tiny random model and a tenth of the calls, and `diffusion` reduced sizes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One figure."""

    what: str
    """Measured value."""
    value: float
    """Median."""
    unit: str
    """Of the value."""
    low: float | None = None
    """Smallest of all rounds."""
    high: float | None = None
    """Largest of all rounds."""
    note: str = ""
    """Conditions, or the bar that it has to reach."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self)


def in_turn(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Let contenders measure themselves in turn (A B C A B C ...), after one round that does not count."""
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, measure in contenders.items():
            figure = measure()
            if number:
                figures[name].append(figure)
    return figures


def rows_of(figures: Mapping[str, list[float]], unit: str, *, note: str = "") -> list[Row]:
    """One row for each contender."""
    return [
        Row(what=name, value=statistics.median(values), unit=unit, low=min(values), high=max(values), note=note)
        for name, values in figures.items()
    ]


def ratio(what: str, ours: list[float], theirs: list[float], *, note: str = "") -> Row:
    """Median of the ratios, round by round: a machine that slows down slows both."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return Row(what=what, value=statistics.median(ratios), unit="x", low=min(ratios), high=max(ratios), note=note)


def seconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
