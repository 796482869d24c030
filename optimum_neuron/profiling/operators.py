"""The time of one call of a graph, divided among its operators.

An estimate times a graph as a whole, see `simulator.device_time`: the longer of compute and transfers, plus the work
that overlaps with nothing. An operator by itself takes the longer of the two; in a graph, transfers of one hide behind
the products of another, so that all of them together take less. Each operator's time is therefore its time alone
multiplied by one factor for the whole graph, `overlap`; work that overlaps with nothing is added per operator. The sum
over all operators and the launch is the graph's time, exactly.

    operators = operators_of(work, time_of)
    sum(one.time_us for one in operators)  # the time of the graph without its launch
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

from ..simulator import DeviceTime
from ..simulator.work import GraphWork, Step

Engine = Literal["tensor", "vector", "dma", "link"]
Bound = Literal["compute", "DMA", "vector", "link", "unknown"]

ENGINES: dict[Engine, str] = {"tensor": "Tensor", "vector": "Vector and Scalar", "dma": "DMA", "link": "Link"}
"""Engines of a core as they are timed, with their names; the rates of Vector and Scalar are one figure."""
BOUND_BY: dict[Engine, Bound] = {"tensor": "compute", "dma": "DMA", "vector": "vector", "link": "link"}
"""Bound of an operator if this engine takes longest."""

TimeOf = Callable[[Step], DeviceTime]
"""Time of a step alone, the launch of a graph included."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OperatorTime:
    """One operator of one call of a graph; times are simulated."""

    operator: str
    """For example "aten.linear"."""
    module_path: str
    """Path in the model, for example "model.layers.3.mlp.down"."""
    source_line: str
    """file:line of the code that calls it, where known."""
    engine: Engine
    """Engine that computes it; DMA or link if it only moves data."""
    bound: Bound
    """Resource that limits it."""
    time_us: float
    """Its share of the graph's time."""
    alone_us: float
    """Time if nothing of it overlapped with other operators."""
    tensor_us: float
    vector_us: float
    dma_us: float
    """Time of its transfers from and to HBM, separate reads included."""
    link_us: float
    reads_us: float
    """The part of `dma_us` that separate reads take: nothing overlaps with them."""
    flops: int
    hbm_bytes: int
    """Lower bound of the bytes read from HBM."""
    is_unknown: bool
    """Whether its work is not known: it is counted, and has no time."""
    kernel: str = ""
    """Key of the NKI kernel that it is, in `Profile.kernels`; empty for other operators."""


def operators_of(work: GraphWork, time_of: TimeOf) -> tuple[OperatorTime, ...]:
    """Divide the time of one call, also among equal operators; `time_of` is that of a step alone."""
    steps = [dataclasses.replace(one, count=1) for one in work.steps if one.name != "host" for _ in range(one.count)]
    times = [time_of(step) for step in steps]
    overlap = overlap_of(times)
    return tuple(_operator(step, time, overlap) for step, time in zip(steps, times, strict=True))


def overlap_of(times: Sequence[DeviceTime]) -> float:
    """Time of a graph's overlapping work over the sum of its operators' times."""
    sums = [sum(getattr(time, name) for time in times) for name in ("compute_s", "transfer_s", "unpack_s")]
    apart_s = sum(time.overlapping_s for time in times)
    return max(sums) / apart_s if apart_s else 1.0


def _operator(step: Step, time: DeviceTime, overlap: float) -> OperatorTime:
    parts, work = time.parts_s, step.work
    overlapping_s = time.overlapping_s
    own_s = time.alone_s - parts["launch"]
    unknown, kernel = bool(work.num_unknown), work.kernels.counts[0][0] if work.kernels.counts else ""
    longest = max((engine for engine in BOUND_BY if parts[engine]), key=lambda engine: parts[engine], default=None)
    computes: dict[Engine, float] = {
        "tensor": work.tensor_cycles + work.attention_cycles,
        "link": work.num_collectives,
        "vector": work.vector_elements + work.unpacked_elements + work.softmax_elements,
    }
    # Arithmetic without passes of its own is fused into the operator before it.
    engine = next((engine for engine, amount in computes.items() if amount), "vector" if work.flops else "dma")
    return OperatorTime(
        operator=step.name,
        module_path=step.module_path,
        source_line=step.source_line,
        engine=longest if kernel and longest else engine,
        bound="unknown" if unknown and longest is None else BOUND_BY[longest or engine],
        time_us=1e6 * (overlap * overlapping_s + own_s),
        alone_us=1e6 * (overlapping_s + own_s),
        tensor_us=1e6 * parts["tensor"],
        vector_us=1e6 * parts["vector"],
        dma_us=1e6 * parts["dma"],
        link_us=1e6 * parts["link"],
        reads_us=1e6 * time.reads_s,
        flops=work.flops,
        hbm_bytes=work.hbm_bytes,
        is_unknown=unknown,
        kernel=kernel,
    )
