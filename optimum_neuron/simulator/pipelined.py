"""Time of a single-pass model on its cores: one core, or the stages of NeuronCore Pipeline on Inf1.

Each core of a pipeline keeps as many weights as the documented rule counts for a core
(`hardware.WEIGHTS_OF_PIPELINE_CORE`), and reads the others from DRAM in every run. A request passes the stages one
after the other; with several in flight, the slowest stage decides how many a second.

run = run_time(work, machine, num_cores=4, busy_cores=4)
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping
from typing import Any

from ..base.balance import stage_of_each
from ..base.wording import counted, size
from ..hardware import WEIGHTS_OF_PIPELINE_CORE, pipeline_cores_of
from .device_time import CoreRates, DeviceTime, device_time
from .fitted import CoreConstants
from .work import GraphWork, Step, Work

WEIGHT_BYTES = 2
"""Of a weight on chip: neuron-cc rounds to 16 bits."""
KEPT_BYTES = WEIGHTS_OF_PIPELINE_CORE * WEIGHT_BYTES
"""Weights that a core of a pipeline keeps."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunTime:
    """Simulated time of one run on the cores of a replica."""

    total: DeviceTime
    """Of all stages, one after the other."""
    stage_s: tuple[float, ...]
    """Of each stage."""
    works: tuple[Work, ...]
    """Work of each stage, without the weights that its core keeps."""

    @property
    def read_bytes(self) -> int:
        """Weights that the stages read from DRAM in a run."""
        return sum(work.weight_bytes for work in self.works)

    def device_period_s(self, num_in_flight: int) -> float:
        """Least time between two results of the cores."""
        return max(*self.stage_s, self.total.total_s / num_in_flight)

    def period_s(self, host_s: float, num_in_flight: int) -> float:
        """Least time between two results of a loaded model, of which each has `host_s` of copies.

        The stages of a pipeline work beside each other and beside copies. One core copies and runs its batches one
        after the other: so were the published throughputs of ResNet and ViT, with two batches in flight.
        """
        if len(self.stage_s) == 1:
            return self.total.total_s + host_s
        return max(host_s, self.device_period_s(num_in_flight), (self.total.total_s + host_s) / num_in_flight)


def divided(work: GraphWork, num_stages: int) -> GraphWork:
    """Return the work with its steps in stages of about equal work, as a trace for Inf1 divides them."""
    stages = stage_of_each([step.count * step.work.flops for step in work.steps], num_stages)
    steps = tuple(dataclasses.replace(one, stage=stage) for one, stage in zip(work.steps, stages, strict=True))
    return dataclasses.replace(work, steps=steps)


def divided_memory(memory: Mapping[str, int], work: GraphWork) -> dict[str, int]:
    """Return the memory of the core with most weights, from the memory of the whole model on one core."""
    weights = [stage.weight_bytes for stage in work.by_stage]
    share = max(weights) / (sum(weights) or 1)
    return {**memory, "weights": round(share * memory.get("weights", 0))}


def stages_of(work: GraphWork, rates: CoreRates) -> tuple[GraphWork, ...]:
    """Return the work of each core of a pipeline, without the weights that it keeps; the work itself if there is none.

    Cores with a memory of their own keep none: only Inf1 has pipelines of single-pass models.
    """
    num_stages = len(work.by_stage)
    if num_stages == 1 or rates.chip_bytes_per_s is None:
        return (work,)
    steps: list[list[Step]] = [[] for _ in range(num_stages)]
    for step in work.steps:
        steps[step.stage].append(dataclasses.replace(step, stage=0))
    return tuple(without_kept(dataclasses.replace(work, steps=tuple(own))) for own in steps)


def without_kept(work: GraphWork) -> GraphWork:
    """Leave out the first weights of a stage, as many as its core keeps."""
    room, steps = KEPT_BYTES, list[Step]()
    for step in work.steps:
        kept = min(step.work.weight_bytes, room // step.count)
        room -= kept * step.count
        read = dataclasses.replace(step.work, weight_bytes=step.work.weight_bytes - kept)
        steps.append(dataclasses.replace(step, work=read))
    return dataclasses.replace(work, steps=tuple(steps))


def run_time(work: GraphWork, rates: CoreRates, fitted: CoreConstants, **options: Any) -> RunTime:
    """Return the time of one run; options are those of `device_time`."""
    stages = tuple(stage.total for stage in stages_of(work, rates))
    times = tuple(device_time(stage, rates, fitted, decoder=False, tiled=True, **options) for stage in stages)
    return RunTime(total=functools.reduce(operator.add, times), stage_s=tuple(t.total_s for t in times), works=stages)


def fit_note(run: RunTime, total: Work) -> str:
    """Say whether the weights of a pipeline fit the memory of its cores, and how many cores hold them."""
    num_weights = total.weight_bytes // WEIGHT_BYTES
    cores, wanted = counted(len(run.works), "core"), pipeline_cores_of(num_weights)
    weights = f"{num_weights / 1e6:.1f} million weights on {cores} of NeuronCore Pipeline"
    rule = f"{WEIGHTS_OF_PIPELINE_CORE / 1e6:g} million weights for each core, as documented"
    if not run.read_bytes:
        return f"{weights}: all stay in the memory of the cores ({rule})"
    more = f"{wanted} cores are the documented number for this model"
    remedy = more if len(run.works) < wanted else "the stages have unequal parts of the weights"
    return (
        f"{weights}: {size(run.read_bytes)} do not fit the memory of the cores and are read from DRAM in every run "
        f"({rule}); {remedy}"
    )
