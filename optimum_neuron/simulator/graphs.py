"""Estimate of a single-pass model: every graph is a run, replicas run side by side.

Work comes from the graphs that an export would compile, or from a compiled program, or from any torch.fx graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..base.core import Choice
from ..base.wording import counted
from ..hardware import require_pipeline_cores
from .machine import Machine, choose_copies, require_fits
from .pipelined import RunTime, divided, divided_memory, fit_note, run_time
from .request import EstimateRequest
from .result import NEURONCORE_PIPELINE, Estimate, generation_notes, largest, make_estimate, scale_of
from .work import GraphWork

CONVOLUTIONS = ("aten.conv1d", "aten.conv2d", "aten.conv3d", "aten.convolution")
MOSTLY = 0.5
"""Share of convolutions in the matmul FLOPs from which a model counts as a CNN."""
PER_S = {"batch_size": "requests_per_s", "text_batch_size": "texts_per_s", "image_batch_size": "images_per_s"}
"""Throughput along each batch axis, by its name."""
TASKS_OF_IMAGES = ("image", "depth", "object-detection", "semantic")
"""Parts of the names of image tasks."""


def kind_of_graph(work: GraphWork, task: str | None) -> str:
    """Return the class of a single-pass model, which decides its intervals.

    Networks of convolutions without attention (ResNet), and encoders whose tokens attend to each other (BERT, ViT) were
    compared with published values. Everything else is "graph", such as perceivers and audio models.
    """
    if len(work.by_stage) > 1:
        return NEURONCORE_PIPELINE
    total = work.total.product_flops
    convolved = sum(s.count * s.work.product_flops for s in work.steps if s.name in CONVOLUTIONS)
    crosses = [step.attends.is_cross for step in work.steps if step.attends]
    if total and convolved > MOSTLY * total and not crosses:
        return "cnn"
    names = {step.name for step in work.steps}
    attends_to_itself = crosses and not any(crosses)
    if task is None or task.startswith("zero-shot") or "audio" in task or "aten.conv1d" in names:
        return "graph"
    if not attends_to_itself:
        return "graph"
    return "vit" if "aten.conv2d" in names or any(part in task for part in TASKS_OF_IMAGES) else "encoder"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunCounts:
    """One run of a single-pass model: one graph on the cores that share it."""

    work: GraphWork
    rows: int
    """Examples of the run."""
    axes: Mapping[str, int]
    """Its batch sizes by axis, for the throughput of each; empty if they are not known."""
    memory: Mapping[str, int]
    """HBM of a core by category."""
    num_cores: int
    """Cores that share the graph."""
    num_cores_reason: str
    task: str | None
    assumptions: tuple[str, ...]
    notes: tuple[str, ...] = ()
    has_release: bool = False
    """Whether it is taken to be compiled by a release of the SDK; a compiled model was compiled by this package."""

    def in_stages(self, num_stages: int | None, machine: Machine) -> RunCounts:
        """Return the run divided over cores of Inf1, or as it is without a number of them."""
        require_pipeline_cores(machine.instance.value, num_stages or 1, option="pipeline_parallel_size")
        if num_stages in (None, 1):
            return self
        work = divided(self.work, num_stages)
        memory, count = divided_memory(self.memory, work), len(work.by_stage)
        reason = f"pipeline_parallel_size={num_stages}"
        return dataclasses.replace(self, work=work, memory=memory, num_cores=count, num_cores_reason=reason)

    def estimate(self, name: str, request: EstimateRequest, machine: Machine) -> Estimate:
        """Estimate a request whose shapes the run has; replicas run on the other cores.

        With several batches in flight, a batch waits for its turn.
        """
        require_fits(name, self.memory, machine, num_cores=self.num_cores)
        num_in_flight = request.batches_in_flight or 1
        memory = sum(self.memory.values())
        copies = choose_copies(machine, self.num_cores, request.data_parallel_size, bytes_of_core=memory)
        kind, work, total = kind_of_graph(self.work, self.task), self.work, self.work.total
        run = run_time(
            work,
            machine.rates,
            machine.fitted,
            num_chips=machine.num_chips(self.num_cores),
            busy_cores=machine.busy_cores(copies.value * min(len(work.by_stage), num_in_flight)),
        )
        host_s = machine.copies_s(total)
        period_s = run.period_s(host_s, num_in_flight) * scale_of(machine, kind, "latency_ms")
        parts = {**run.total.parts_s, "host": host_s}
        limited_by = max(parts, key=lambda part: parts[part])
        per_s = copies.value * self.rows / period_s
        result = make_estimate(
            machine,
            name=name,
            kind=kind,
            values={
                "latency_ms": (num_in_flight * period_s * 1e3, limited_by),
                "throughput_per_s": (per_s, limited_by),
                "hbm_bytes_per_core": (memory, largest(self.memory)),
                **_shares(run, machine, num_in_flight, limited_by),
            },
            per_s=per_s,
            num_cores=Choice(value=self.num_cores, reason=self.num_cores_reason),
            num_copies=copies,
            memory=dict(self.memory),
            bounds_s={"run": sum(map(machine.rates.least_s, run.works))},
            parts_s={work.name: parts},
            device_s={work.name: run.total.total_s},
            assumptions=(
                *self.assumptions,
                *self._release(request),
                f"batches of {self.rows}, {counted(num_in_flight, 'batch', 'batches')} in flight on each of "
                f"{counted(copies.value, 'replica')}",
                *machine.sources,
            ),
            notes=_notes(kind, machine, work, run),
            unknown={op: 1 / max(work.num_calls, 1) for op in work.unknown},
        )
        result = dataclasses.replace(result.noted(*self.notes), batch_size=self.rows)
        if len(self.axes) < 2:
            return result
        rate = result.quantities["throughput_per_s"]
        each = {PER_S[axis]: rate.scaled(size / self.rows) for axis, size in self.axes.items()}
        return dataclasses.replace(result, throughput_by_axis=each)

    def _release(self, request: EstimateRequest) -> list[str]:
        """The release of the SDK, as an assumption."""
        if not self.has_release:
            return []
        return [f"Neuron SDK {request.sdk or 'current'}: single-pass models changed little between releases"]


def _shares(run: RunTime, machine: Machine, num_in_flight: int, limited_by: str) -> dict[str, tuple[float, str]]:
    """Return the bytes that a run reads, and its shares of the peak and of the bandwidth of its cores."""
    rates, cores_s = machine.rates, len(run.works) * run.device_period_s(num_in_flight)
    num_bytes = sum(work.hbm_bytes for work in run.works)
    return {
        "hbm_bytes_per_step": (num_bytes, limited_by),
        "mfu": (sum(work.product_flops for work in run.works) / cores_s / rates.peak_flops_per_s, limited_by),
        "mbu": (num_bytes / cores_s / rates.hbm_bytes_per_s, limited_by),
    }


def _notes(kind: str, machine: Machine, work: GraphWork, run: RunTime) -> tuple[str, ...]:
    notes = [] if len(run.works) == 1 else [fit_note(run, work.total)]
    if kind == "graph":
        notes.append(
            "published values of this class are of CLIP and Perceiver only, which took up to 2.1 times such sums: the "
            "intervals are wide"
        )
    notes += generation_notes(machine.target, "no published value of single-pass models")
    if work.unknown:
        count = sum(step.count for step in work.steps if step.work.num_unknown)
        share = count / max(work.num_calls, 1)
        notes.append(
            f"{count} calls ({share:.1%}) of {', '.join(work.unknown)} are not counted: sizes depend on values"
        )
    return tuple(notes)
