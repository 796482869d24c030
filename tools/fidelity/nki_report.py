"""Simulated against published times of kernels, and the source of each cost, for docs/fidelity-details.md.

    python tools/fidelity/nki_report.py

It rewrites only the section on kernels. Large shapes are simulated in part and scaled: kernels repeat one loop.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from optimum_neuron.hardware import resolve_target
from optimum_neuron.nki import COSTS, Event, jit
from optimum_neuron.nki.core import Core
from optimum_neuron.nki.cost import dma_bytes_per_s
from optimum_neuron.nki.kernel import launch_on_cores
from optimum_neuron.nki.timeline import schedule

sys.path.insert(0, str(Path(__file__).parent))
import nki_kernels as kernels

FILE = Path(__file__).parents[2] / "docs/fidelity-details.md"
START = "## Kernels\n"

TUTORIAL = "Neuron docs, NKI tutorial, matrix multiplication (Neuron 2.2x)"
OPTIMIZATION = "Neuron docs, NKI tutorial, kernel optimization"
MAMBA = "Neuron docs, NKI tutorial, fused Mamba (Neuron 2.2x)"
DMA = "Neuron docs, NKI, introduction to direct memory access"
GUIDE = "Neuron docs, NKI, performance guide"

INTRODUCTION = """Times of NKI kernels that public tutorials and guides print, and what `nki.analyze` says of the same
kernels, written again from the pages' descriptions (`tools/fidelity/nki_kernels.py`). This section is written by
`python tools/fidelity/nki_report.py`. Instructions cost what the documents below publish, and no constant is fitted to
these times. Two choices were made with the rows in view: a run of DMA takes a fixed part and its bytes, whose constants
are the two rates that the guides publish for an engine; and the scans read their broadcast rows from PSUM. Large shapes
are simulated in part and scaled. The vendor's compiler reorders the instructions of a kernel, and the simulation does
not.

"""
COSTS_TEXT = """
### Costs of instructions

Cycles of the engine for N elements in each of P partitions; for DMA, nanoseconds. "Assumed" has no public source.

"""


@dataclasses.dataclass(frozen=True)
class Case:
    """One published value."""

    title: str
    where: str
    published: float
    unit: str
    simulated: Callable[[], float]
    source: str


def events_of(kernel: Callable[..., Any], *args: Any, platform: str, **options: Any) -> list[Event]:
    """Return when a kernel's instructions run, without computing their values."""
    made = jit(kernel).changed(platform=platform)
    _, cores = launch_on_cores(made, args, options, record=True, computes=False)
    return schedule(cores[0].stream or [], cores[0].target)


def total_us(events: list[Event]) -> float:
    """Return the time of the last result."""
    return max(event.end_ns for event in events) / 1e3


def busy(events: list[Event], engine: str) -> float:
    """Return the share of the time that an engine is busy, in percent."""
    return sum(event.busy_ns for event in events if event.record.engine == engine) / 10 / total_us(events)


@functools.cache
def matmul(kernel: Callable[..., Any], dtype: torch.dtype, platform: str) -> list[Event]:
    """Return the events of a product of two matrices of 2,048 by 2,048."""
    return events_of(kernel, *(torch.empty(2048, 2048, dtype=dtype) for _ in range(2)), platform=platform)


def mamba(kernel: Callable[..., Any], channels: int, length: int, **options: Any) -> list[Event]:
    """Return the events of a selective scan with 16 states."""
    shapes = ((channels, length), (channels, length), (channels, 16), (16, length), (16, length))
    return events_of(kernel, *map(torch.empty, shapes), platform="trn1", **options)


def scan_in_parts(length: int) -> float:
    """Return milliseconds of the scan of 4,096 channels in parts of 512 elements, from 256 channels."""
    columns = min(length, 2048)
    scale = 4096 / 256 * length / columns
    return total_us(mamba(kernels.mamba_by_channel, 256, columns, columns=512)) * scale / 1e3


def one_engine_ns() -> float:
    """Return the time of 32 KiB in runs of 8 KiB through one DMA engine."""
    core = Core(target=resolve_target("trn2").value)
    return 32768 / (dma_bytes_per_s(core, 8192) / (core.spec.num_dma_engines or 1)) * 1e9


def dependent_ns() -> float:
    """Return the time from one to the next of dependent instructions of the scalar engine."""
    events = events_of(kernels.dependent, torch.empty(128, 1), platform="trn2")
    starts = [event.start_ns for event in events if event.record.engine == "scalar"]
    return (starts[-1] - starts[1]) / (len(starts) - 2)


def cases() -> Iterator[Case]:
    """Yield all published values."""
    products = 4096 * 8192 * 8192 / 2048**3
    for title, kernel, published in (
        ("tiled", kernels.tiled, 51.80),
        ("loads hoisted", kernels.hoisted, 42.96),
        ("free dimensions blocked", kernels.blocked, 22.07),
        ("all dimensions blocked", kernels.all_blocked, 6.97),
    ):
        where = "trn1, bfloat16, 4096x8192 by 8192x8192"
        yield Case(
            f"matmul, {title}",
            where,
            published,
            "ms",
            lambda kernel=kernel: total_us(matmul(kernel, torch.bfloat16, "trn1")) * products / 1e3,
            TUTORIAL,
        )
    for title, kernel, engine, published in (
        ("tiled", kernels.tiled, "dma", 99.93),
        ("tiled", kernels.tiled, "tensor", 87.28),
        ("free dimensions blocked", kernels.blocked, "tensor", 99.52),
        ("all dimensions blocked", kernels.all_blocked, "tensor", 99.50),
        ("all dimensions blocked", kernels.all_blocked, "dma", 21.54),
        ("all dimensions blocked", kernels.all_blocked, "vector", 10.55),
    ):
        yield Case(
            f"matmul, {title}: {engine} is active",
            "trn2, float32, 4096x8192 by 8192x8192",
            published,
            "%",
            lambda kernel=kernel, engine=engine: busy(matmul(kernel, torch.float32, "trn2"), engine),
            OPTIMIZATION,
        )
    by_state, by_channel = kernels.mamba_by_state, kernels.mamba_by_channel
    where = "trn1, float32, 16 states, {} channels of {}"
    yield Case("scan, states outside", where.format(256, 512), 172.93, "us",
               lambda: total_us(mamba(by_state, 256, 512)), MAMBA)  # fmt: skip
    yield Case("scan, states outside", where.format(4096, 512), 2.34, "ms",
               lambda: total_us(mamba(by_state, 1024, 512)) * 4 / 1e3, MAMBA)  # fmt: skip
    yield Case("scan, channels outside", where.format(4096, 512), 1.61, "ms",
               lambda: total_us(mamba(by_channel, 1024, 512)) * 4 / 1e3, MAMBA)  # fmt: skip
    for length, published in ((512, 1.6), (1024, 3.3), (2048, 6.6), (4096, 13.3), (6144, 19.6), (8192, 27.8)):
        yield Case("scan in parts of 512", where.format(4096, length), published, "ms",
                   lambda length=length: scan_in_parts(length), MAMBA)  # fmt: skip
    yield Case("32 KiB through one DMA engine", "trn2, 4 runs of 8 KiB", 1416, "ns", one_engine_ns, DMA)
    yield Case("dependent activations of one element (a constant of the model)", "trn2", 222, "ns", dependent_ns, GUIDE)


def costs() -> str:
    """Return the table of what instructions cost."""
    head = ["| instruction | engine | cost | source |", "| --- | --- | --- | --- |"]
    rows = [f"| `{name}` | {row.engine} | {row.formula} | {row.source} |" for name, row in COSTS.items()]
    return "\n".join([*head, *rows]) + "\n"


def section() -> str:
    """Return the section of the page."""
    rows = ["| kernel | where | published | simulated | error | source |", "| --- | --- | --- | --- | --- | --- |"]
    errors = {}
    for case in cases():
        simulated = case.simulated()
        error = simulated / case.published - 1
        errors[f"{case.title} ({case.published:g} {case.unit})"] = error
        values = f"{case.published:g} {case.unit} | {simulated:.4g} {case.unit} | {100 * error:+.1f} %"
        rows.append(f"| {case.title} | {case.where} | {values} | {case.source} |")
    inside = sum(abs(error) <= 0.25 for error in errors.values())
    worst = ", ".join(sorted(errors, key=lambda title: -abs(errors[title]))[:3])
    told = f"\n{inside} of {len(errors)} values are within 25 %. Furthest off are {worst}.\n"
    return INTRODUCTION + "\n".join(rows) + "\n" + told + COSTS_TEXT + costs()


def main() -> int:
    """Write the section into the page."""
    text = FILE.read_text(encoding="utf-8")
    FILE.write_text(f"{text.partition(START)[0]}{START}\n{section()}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
