"""`analyze(kernel, *args)`: what a kernel does on the core, from the stream of its instructions.

It runs the kernel once, and says how much of SBUF and PSUM its tiles need, what it reads that nothing wrote, when the
engines run and which of them bounds it, how near it is to the roofline, and what the public guides advise. Times are
simulated, from published cycle counts; `timeline.py` says what the simulation leaves out.
"""

from __future__ import annotations

import collections
import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..base.core import Choice
from ..errors import ConfigError
from .advice import Advice, advise, contention
from .core import Core, PlainData, Record, Unwritten
from .elements import UninitializedReadWarning
from .hazards import Hazard, Race, core_races, hazards_of, placement_races
from .kernel import launch_on_cores, simulate
from .memory import Buffer
from .occupancy import Occupancy, occupancy
from .platform import Problem, problems_of
from .scheduling import Edge, reordered
from .timeline import ENGINES, Event, busy_us, elements, hbm_bytes, pairs_of, schedule

BUSY_SHARE = 0.7
"""Share of the time from which an engine bounds a kernel; below, waiting does."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roofline(PlainData):
    """What a kernel computes and moves, and the shortest time that the target allows for it."""

    COMPUTED = ("best_us",)

    matmul_flop: int
    """Operations of matmuls, without transposes."""
    hbm_bytes: int
    matmul_us: float
    """Time of the matmuls at the tensor engine's peak rate of their dtypes."""
    hbm_us: float
    """Time of the bytes at the full rate of the DMA engines."""

    @property
    def best_us(self) -> float:
        """Shortest possible time."""
        return max(self.matmul_us, self.hbm_us)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Analysis(PlainData):
    """What is known of one run of a kernel."""

    HIDDEN = ("result", "events")

    name: str
    target: str
    result: Any
    events: tuple[Event, ...]
    total_us: float
    """Time until the last result is there."""
    busy_us: dict[str, float]
    bound: Choice[str]
    """Engine that bounds the kernel, or "waiting", with the reason."""
    memory: tuple[Occupancy, ...]
    """SBUF and PSUM."""
    unwritten: tuple[Unwritten, ...]
    """Reads of memory that nothing wrote."""
    roofline: Roofline
    advice: tuple[Advice, ...]
    """What the guides advise, the advice about most time first."""
    hazards: tuple[Hazard, ...] = ()
    """Pairs of instructions that the framework orders, most frequent first."""
    races: tuple[Race, ...] = ()
    """Pairs that nothing orders."""
    platform: tuple[Problem, ...] = ()
    """What the hardware's compiler does not take of its Python."""

    @property
    def roofline_share(self) -> float:
        """Shortest possible time, divided by the simulated one."""
        return self.roofline.best_us / self.total_us

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, without the results and the instructions."""
        counts = {"num_instructions": len(self.events), "num_waits": sum(event.has_waited for event in self.events)}
        return {**super().to_dict(), **counts, "roofline": {**self.roofline.to_dict(), "share": self.roofline_share}}

    def trace(self) -> dict[str, Any]:
        """Return the engines' timeline for ui.perfetto.dev, in microseconds."""
        return trace_of(self.events)


def trace_of(events: Sequence[Event]) -> dict[str, Any]:
    """Return a timeline of instructions for ui.perfetto.dev, in microseconds."""
    names = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": engine}}
        for number, engine in enumerate(ENGINES)
    ]
    spans = [
        {
            "ph": "X",
            "name": event.record.opcode,
            "pid": 1,
            "tid": ENGINES.index(event.record.engine),
            "ts": event.start_ns / 1e3,
            "dur": event.busy_ns / 1e3,
            "args": {"line": event.record.line, "result_us": event.end_ns / 1e3, **dict(event.record.parameters)},
        }
        for event in events
    ]
    return {"traceEvents": [*names, *spans], "displayTimeUnit": "ns", "otherData": {"simulated": True}}


def analyze(kernel: Callable[..., Any], *args: object, **kwargs: object) -> Analysis:
    """Run a kernel once, and return what it does on the core; on a grid, on its first core.

    Args:
        kernel: a kernel or a function that could be one.
        *args: its arguments.
        **kwargs: its arguments by name.

    Raises:
        KernelError: the kernel breaks a rule.
        ConfigError: it executes no instruction.

    Example:
        ```python
        import torch

        from optimum_neuron.nki import analyze, jit, language as nl


        @jit
        def square(x):
            out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
            nl.store(out, nl.square(nl.load(x)))
            return out


        analysis = analyze(square, torch.ones(128, 512))
        assert analysis.memory[0].peak == 2 * 512 * 4 and not analysis.unwritten
        ```
    """
    made = simulate(kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UninitializedReadWarning)
        result, cores = launch_on_cores(made, args, kwargs, record=True)
    problems = () if made.is_older else tuple(problems_of(made.function))
    return analysis_of(made.function.__name__, cores, result, edges=made.schedule, platform=problems)


def analysis_of(
    name: str, cores: Sequence[Core], result: object, *, edges: Sequence[Edge] = (), platform: tuple[Problem, ...] = ()
) -> Analysis:
    """Return what the first of the cores did, which recorded their instructions.

    Args:
        platform: Python that the hardware's compiler does not take.
    """
    core = cores[0]
    stream = core.stream
    if not stream:
        message = f"The kernel {name} executed no instruction."
        raise ConfigError(message, hint="Analyze a kernel that loads, computes and stores.")
    pairs, executed, turned = pairs_of(stream), stream, list[Race]()
    waits: dict[int, list[int]] = collections.defaultdict(list)
    hazards = tuple(hazards_of(stream, pairs))
    if edges or core.waits:
        order, turned = reordered(stream, edges, pairs, core.waits)
        places = {number: place for place, number in enumerate(order)}
        for producer, consumer in core.waits:
            waits[places[consumer]].append(places[producer])
        pairs = [pair._replace(first=places[pair.first], second=places[pair.second]) for pair in pairs]
        executed = [stream[number] for number in order]
    events = schedule(executed, core.target, pairs, waits)
    total_us = max(event.end_ns for event in events) / 1e3
    busy = busy_us(events)
    return Analysis(
        name=name,
        target=core.target.name,
        result=result,
        events=tuple(events),
        total_us=total_us,
        busy_us=busy,
        bound=_bound(busy, total_us),
        memory=tuple(
            occupancy(executed, place.value, core.partition_bytes(place)) for place in (Buffer.sbuf, Buffer.psum)
        ),
        unwritten=tuple(core.unwritten),
        roofline=_roofline(stream, core),
        advice=tuple(
            sorted([*advise(events, core.timing), *contention(events, core.spec)], key=lambda advice: -advice.busy_us)
        ),
        hazards=hazards,
        races=(*turned, *placement_races(stream), *core_races([one.stream or [] for one in cores])),
        platform=platform,
    )


def _bound(busy: dict[str, float], total_us: float) -> Choice[str]:
    busiest = max(busy, key=lambda name: busy[name], default=ENGINES[0])
    share = busy.get(busiest, 0.0) / total_us
    fact = f"the busiest engine, {busiest}, is busy {share:.0%} of the time"
    if share >= BUSY_SHARE:
        return Choice(value=busiest, reason=fact)
    return Choice(value="waiting", reason=f"{fact}: engines wait for each other's results")


def _roofline(stream: Sequence[Record], core: Core) -> Roofline:
    flop, matmul_s, moved = 0, 0.0, sum(map(hbm_bytes, stream))
    for record in stream:
        if record.opcode in ("nc_matmul", "nc_matmul_mx") and ("is_transpose", "True") not in record.parameters:
            mine, rate = _matmul(record, core)
            flop += mine
            matmul_s += mine / rate
    spec = core.spec
    assert spec.num_dma_engines and spec.dma_engine_bytes_per_s
    return Roofline(
        matmul_flop=flop,
        hbm_bytes=moved,
        matmul_us=matmul_s * 1e6,
        hbm_us=moved / (spec.num_dma_engines * spec.dma_engine_bytes_per_s) * 1e6,
    )


def _matmul(record: Record, core: Core) -> tuple[int, float]:
    """Return the operations of a matmul, and the peak rate; one of a dtype without a published rate is bfloat16's."""
    (stationary, moving, *_), (result, *_) = record.reads, record.writes
    values = 4 if record.opcode == "nc_matmul_mx" else 1
    flop = 2 * elements(stationary) * values * elements(result) // max(1, result.shape[0])
    rates = core.spec.tensor.tflops
    name = "mxfp8" if values == 4 else moving.dtype
    return flop, rates.get(name, rates["bfloat16"]) * 1e12
