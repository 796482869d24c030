"""From a recording of the runtime to a profile: each graph timed as an estimate times it, each call on one clock.

with record("my model") as recorder:
    model(**inputs)
profile = recorder.profile()
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ..base.wording import counted, number, time_span
from ..compiler import MICROCODE_BYTES, memory_need
from ..runtime import OBSERVERS, TORCH_OWNER, Recording, Track, ledger, recording
from ..simulator import (
    NEURONCORE_PIPELINE,
    SERVED_AS,
    Constants,
    DeviceTime,
    Machine,
    as_constants,
    band_of,
    choose_machine,
    generates,
    kind_of_generator,
    kind_of_graph,
    known_cost,
    prompt_host_s,
    scale_of,
    token_host_s,
    track_time,
    work_on_track,
)
from ..simulator.work import GraphWork, Step
from .graph import GraphProfile
from .kernels import kernels_of
from .operators import operators_of
from .profile import CallProfile, CoreProfile, MachineRates, Profile, nothing_ran
from .schedule import RecordedCall, on_one_clock

CLOCK = (
    "one clock of host and cores: between calls it goes as this host's, measured; during calls as the simulated cores'"
)
UNCOUNTED = "not in it: copies of tensors between the host and the torch device, and what other processes run"


class Recorder:
    """Executions of compiled programs and eager operators, to be profiled; made by `record`."""

    def __init__(self, name: str, executions: Recording, constants: Constants | None = None) -> None:
        self._name, self._executions, self._constants = name, executions, as_constants(constants)

    @property
    def num_calls(self) -> int:
        """Calls that were recorded so far."""
        OBSERVERS.collect()
        return len(self._executions)

    def profile(self, *, notes: Sequence[str] = (), assumptions: Sequence[str] = ()) -> Profile:
        """Time the calls recorded so far, with notes for a reader and assumptions of the caller."""
        if not self.num_calls:
            raise nothing_ran(self._name)
        return _profile(self._name, list(self._executions), notes, assumptions, self._constants)


@contextlib.contextmanager
def record(name: str = "this process", *, constants: str | Path | Constants | None = None) -> Iterator[Recorder]:
    """Record every call of a compiled program, and every eager operator of the torch device, until the block ends.

    Args:
        name: Name of the program, for titles.
        constants: a file of `optimum-cli neuron calibrate`, or its content, to time calls with; None: this version's.

    Raises:
        ConfigError: the file of the constants cannot be read.

    Example:
        ```python
        import torch
        from optimum_neuron.profiling import record
        from optimum_neuron.tracing import trace

        model = trace(torch.nn.Linear(64, 32), torch.rand(3, 64), compiler_args="-O1")
        with record("linear") as recorder:
            model(torch.rand(3, 64))
        profile = recorder.profile()
        assert profile.simulated and profile.rows()[0].time_us > 0
        ```
    """
    values = as_constants(constants)
    with recording() as executions:
        yield Recorder(name, executions, values)


def _profile(
    name: str, recorded: Recording, notes: Sequence[str], assumptions: Sequence[str], values: Constants
) -> Profile:
    executions = [(track, done) for track, done in recorded if known_cost(track, done.graph) is not None]
    executions = executions or recorded  # the error says why nothing can be timed
    if len(executions) < len(recorded):
        notes = (*notes, f"{counted(len(recorded) - len(executions), 'call')} without a simulated time left out")
    keys = [_key(track, done.graph) for track, done in executions]
    calls = collections.Counter(keys)
    tracks: dict[_Key, Track] = {}
    for key, (track, _) in zip(keys, executions, strict=True):
        tracks.setdefault(key, track)
    names = dict.fromkeys(track.instance.name for track in tracks.values())
    machines = {instance: choose_machine(instance, constants=values) for instance in names}
    graphs = [_graph(track, key[-1], calls[key], machines[track.instance.name]) for key, track in tracks.items()]
    places = {key: place for place, key in enumerate(tracks)}
    spans = _calls(executions, [places[key] for key in keys], graphs)
    return Profile(
        name=name,
        machines=tuple(_rates(machine) for machine in machines.values()),
        graphs=tuple(graphs),
        calls=tuple(sorted(spans, key=lambda call: call.started_us)),
        cores=tuple(_cores(executions, spans, machines)),
        assumptions=(
            *assumptions,
            "work of the compiled graphs, timed as an estimate times it; each core runs one call at a time",
            *dict.fromkeys(text for track in tracks.values() for text in track.assumptions),
            f"constants version {values.version}, {values.fitted_on}",
            CLOCK,
        ),
        kernels=kernels_of(
            (one.kernel, machines[graph.instance].target.name, graph.num_calls)
            for graph in graphs
            for one in graph.operators
            if one.kernel
        ),
        notes=(*notes, *_pipelines(tracks.values(), graphs), UNCOUNTED),
    )


_Key = tuple[int, str, str, str]
"""One graph of a profile: replicas of a program on several cores are one."""


def _key(track: Track, graph: str) -> _Key:
    return id(track.program) if track.program is not None else track.number, track.model, track.instance.name, graph


def _graph(track: Track, graph: str, num_calls: int, machine: Machine) -> GraphProfile:
    work = work_on_track(track, graph)
    kind, metric = _class(track, graph, work)
    band, scale = band_of(kind, metric, machine.target, machine.constants), scale_of(machine, kind, metric)
    time = track_time(work, machine, track).slower(scale)

    def alone(step: Step) -> DeviceTime:
        return track_time(GraphWork(name=graph, steps=(step,)), machine, track).slower(scale)

    return GraphProfile(
        model=track.model,
        graph=graph,
        instance=track.instance.name,
        kind=kind,
        num_calls=num_calls,
        device_us=1e6 * time.total_s,
        launch_us=1e6 * time.parts_s["launch"],
        parts_us={part: 1e6 * seconds for part, seconds in time.parts_s.items()},
        limited_by=time.limited_by,
        path_us=1e6 * scale * _host_s(track, graph, work, machine),
        low=band.low,
        high=band.high,
        flops=work.total.product_flops,
        hbm_bytes=work.total.hbm_bytes,
        operators=operators_of(work, alone),
    )


def _pipelines(tracks: Iterable[Track], graphs: Sequence[GraphProfile]) -> Iterator[str]:
    """Say how many requests a second the stages of NeuronCore Pipeline take."""
    stages: dict[tuple[str, str], list[float]] = {}
    for track, graph in zip(tracks, graphs, strict=True):
        if graph.kind == NEURONCORE_PIPELINE:
            stages.setdefault((track.model.rpartition(", stage ")[0], graph.graph), []).append(graph.device_us)
    for (model, name), times_us in stages.items():
        slowest_us = max(times_us)
        yield (
            f"{model}, graph {name}, runs in {counted(len(times_us), 'stage')} of NeuronCore Pipeline: one request "
            f"takes {time_span(sum(times_us) / 1e6)} on the cores; with several in flight, they do up to "
            f"{number(1e6 / slowest_us)} a second, because the slowest stage takes {time_span(slowest_us / 1e6)}"
        )


def _class(track: Track, graph: str, work: GraphWork) -> tuple[str, str]:
    """Class of model and quantity whose interval a call has, as an estimate of the program chooses them."""
    if track.num_stages > 1 and track.instance.chip.memory == "DRAM":
        return NEURONCORE_PIPELINE, "latency_ms"
    if track.program is None or not generates(track.program):
        return kind_of_graph(work, track.task), "latency_ms"
    role = track.program.graphs[graph].role
    return kind_of_generator(track.program, work), "tpot_ms" if role in ("decode", "extend") else "ttft_ms"


def _host_s(track: Track, graph: str, work: GraphWork, machine: Machine) -> float:
    """Host time of a call: preparing prompts and tokens of a server, and copies."""
    copies_s = machine.copies_s(work.total)
    if track.program is None or not generates(track.program):
        return copies_s
    host = machine.constants.hosts[SERVED_AS.host]
    role = track.program.graphs[graph].role
    if role in ("encode", "encode_image", "encode_audio"):
        return 0.0  # the prompt's share is that of the first step
    if role in ("prefill", "score"):
        return prompt_host_s(host, machine.instance.value.family)
    specs = track.program.graphs[graph].inputs.values()
    return token_host_s(host, max(spec.shape[0] for spec in specs if spec.shape)) + copies_s


def _calls(executions: Recording, places: Sequence[int], graphs: Sequence[GraphProfile]) -> list[CallProfile]:
    """Every execution on the one clock, in their order; `places` are the indices of their graphs."""
    seen = [
        RecordedCall(
            core_ids=tuple((track.instance.name, core) for core in track.core_ids),
            device_us=graphs[place].device_us,
            started_us=done.started_ns / 1e3,
            ended_us=done.ended_ns / 1e3,
        )
        for (track, done), place in zip(executions, places, strict=True)
    ]
    threads = {thread: number for number, thread in enumerate(dict.fromkeys(done.thread for _, done in executions))}
    return [
        CallProfile(
            graph=place,
            core_ids=track.core_ids,
            thread=threads[done.thread],
            started_us=span.started_us,
            ended_us=span.ended_us,
            host_us=(done.ended_ns - done.started_ns) / 1e3,
        )
        for (track, done), place, span in zip(executions, places, on_one_clock(seen), strict=True)
    ]


def _cores(
    executions: Recording, calls: Sequence[CallProfile], machines: Mapping[str, Machine]
) -> Iterator[CoreProfile]:
    tracks = {track.number: track for track, _ in executions}.values()
    for instance, core_id in sorted({(t.instance.name, core) for t in tracks for core in t.core_ids}):
        here = [track for track in tracks if track.instance.name == instance and core_id in track.core_ids]
        own = [call for (track, _), call in zip(executions, calls, strict=True) if track in here]
        lnc = machines[instance].rates.num_physical
        needs = [memory_need(track.program, machines[instance].target) for track in here if track.program is not None]
        yield CoreProfile(
            instance=instance,
            core_id=core_id,
            models=tuple(dict.fromkeys(track.model for track in here)),
            num_calls=len(own),
            busy_us=sum(call.ended_us - call.started_us for call in own),
            hbm_bytes={
                "weights": sum(need.weights for need in needs),
                "kv_cache": sum(need.kv_cache for need in needs) + _tensor_bytes(here, core_id),
                "scratch": sum(need.scratch for need in needs),
                "code": MICROCODE_BYTES * lnc,
            },
        )


def _tensor_bytes(tracks: Sequence[Track], core_id: int) -> int:
    """HBM that tensors of torch's device take now, where graphs of torch.compile or eager operators ran on a core."""
    for track in tracks:
        if track.program is None:
            return sum(ledger(track.instance, core_id).used_by_owner().get(TORCH_OWNER, {}).values())
    return 0


def _rates(machine: Machine) -> MachineRates:
    rates = machine.rates
    return MachineRates(
        instance=machine.instance.value.name,
        target=machine.target.name,
        peak_flops_per_s=rates.peak_flops_per_s,
        dma_bytes_per_s=rates.dma_bytes_per_s,
        hbm_bytes_per_s=rates.hbm_bytes_per_s,
        hbm_bytes=machine.hbm_bytes_per_core,
    )
