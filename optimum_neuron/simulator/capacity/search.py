"""Tries configurations for a trace and an objective, and keeps the cheapest.

    search = Search(trace=trace, slo=slo, max_queue_size=None, replicas=replicas, machines=machines)
    search.run()

A configuration that cannot be cheaper than the best so far is not replayed. Parts of programs are timed (`pools.py`),
and `sweep.py` confirms the best one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from ...base.wording import counted, number
from ...errors import ConfigError
from ...hardware import legal_core_counts
from ..continuous import ServedPool
from ..machine import Machine
from .pools import Replicas
from .replay import replay_trace
from .report import report_of
from .slo import SLO
from .trace import Trace

BATCH_SIZES, CHUNK_SIZES = (4, 8, 16, 32, 64), (128, 256, 512)
MOST_INSTANCES = 64
NUM_ALONE = 100
"""Requests that are tried without others."""
SHOWN = ("median_ttft_ms", "p99_ttft_ms", "p99_tpot_ms", "slo_attainment", "usd_per_1m_output_tokens")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tried:
    """One configuration, simulated."""

    instance: str
    num_cores: int
    batch_size: int | None = None
    """None for all that were left."""
    prefill_chunk_size: int | None = None
    num_instances: int | None = None
    """Fewest that meet the objective; None if no number does."""
    num_replicas: int | None = None
    usd_per_h: float | None = None
    numbers: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    """Some numbers of its replay."""
    reason: str = ""
    """Why it lost, or won."""

    @property
    def meets_slo(self) -> bool:
        """Whether it was replayed and meets the objective."""
        return self.num_instances is not None

    @property
    def label(self) -> str:
        """Configuration in words."""
        cores = f"{self.instance}, {counted(self.num_cores, 'core')} a replica"
        return (
            cores if self.batch_size is None else f"{cores}, batch {self.batch_size}, chunks {self.prefill_chunk_size}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**dataclasses.asdict(self), "numbers": dict(self.numbers), "meets_slo": self.meets_slo}


@dataclasses.dataclass(kw_only=True)
class Search:
    """The configurations, and the best so far."""

    trace: Trace
    slo: SLO
    max_queue_size: int | None
    replicas: Replicas
    machines: list[Machine]
    batch_sizes: tuple[int, ...]
    chunk_sizes: tuple[int, ...]
    num_cores: int | None
    on_tried: Callable[[Tried], None]
    tried: list[Tried] = dataclasses.field(default_factory=list)
    best: Tried | None = None
    _excluded: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def best_usd(self) -> float:
        """Price of the best for an hour; infinite before there is one."""
        return math.inf if self.best is None or self.best.usd_per_h is None else self.best.usd_per_h

    def run(self) -> Tried | None:
        """Try all configurations; return the cheapest that meets the objective."""
        self.tried, self.best = [], None
        counts = sorted({count for one in self.machines for count in legal_core_counts(one.instance.value).counts})
        for count in counts if self.num_cores is None else [self.num_cores]:
            before = self.best_usd
            machines = [one for one in self.machines if count in legal_core_counts(one.instance.value).counts]
            for machine in machines:
                self._try_machine(machine, count)
            if before == self.best_usd < math.inf:
                break  # larger replicas need more cores for the same objective
        return self.best

    def exclude(self, one: Tried, reason: str) -> None:
        """Let a configuration lose in the next run."""
        self._excluded[one.label] = reason

    def _try_machine(self, machine: Machine, num_cores: int) -> None:
        name, usd = machine.instance.value.name, usd_of(machine)
        if usd >= self.best_usd:
            reason = f"one instance costs ${number(usd)} an hour: no cheaper than the best"
            self._note(Tried(instance=name, num_cores=num_cores, reason=reason))
            return
        for chunk_size in self.chunk_sizes:
            for batch_size in self.batch_sizes:
                sizes: dict[str, Any] = {"batch_size": batch_size, "prefill_chunk_size": chunk_size}
                one = Tried(instance=name, num_cores=num_cores, **sizes)
                try:
                    pool, memory = self.replicas.pool(
                        machine, num_cores=num_cores, batch_size=batch_size, chunk_size=chunk_size
                    )
                except ConfigError as error:
                    self._note(dataclasses.replace(one, batch_size=None, prefill_chunk_size=None, reason=str(error)))
                    return
                if sum(memory.values()) > machine.hbm_bytes_per_core:
                    self._note(dataclasses.replace(one, reason=_too_large(memory, machine)))
                    if batch_size == self.batch_sizes[0]:
                        return  # larger chunks do not fit either
                    break  # nor do larger batches
                self._note(self._measure(one, machine, pool))

    def _note(self, one: Tried) -> None:
        self.tried.append(one)
        if one.usd_per_h is not None and one.usd_per_h < self.best_usd:
            self.best = one
        self.on_tried(one)

    def _measure(self, one: Tried, machine: Machine, pool: ServedPool) -> Tried:
        """Find the fewest instances that meet the objective, if it may be cheaper than the best."""
        if (reason := self._excluded.get(one.label)) is not None:
            return dataclasses.replace(one, reason=reason)
        usd, room = usd_of(machine), machine.num_logical_cores // one.num_cores
        fewest = max(math.ceil(self._busy_replicas(pool) / room), 1)
        most = MOST_INSTANCES if self.best is None else math.ceil(self.best_usd / usd) - 1
        if fewest > most:
            what = f"needs at least {counted(fewest, 'instance')}, ${number(fewest * usd)} an hour"
            return dataclasses.replace(one, reason=f"{what}: no cheaper than the best")
        alone = self._alone(pool)
        if not alone["meets_slo"]:
            return dataclasses.replace(one, numbers=_shown(alone), reason=_misses(alone, self.slo, "a request alone"))

        def numbers_at(num_instances: int) -> dict[str, Any]:
            served = replay_trace(
                pool, self.trace, num_replicas=num_instances * room, max_queue_size=self.max_queue_size
            )
            return report_of(served, slo=self.slo, usd_per_h=num_instances * usd)

        found = _fewest(numbers_at, fewest, most)
        if not found[1]["meets_slo"]:
            reason = _misses(found[1], self.slo, counted(found[0], "instance"))
            limit = "" if self.best is None else "; more are no cheaper than the best"
            return dataclasses.replace(one, numbers=_shown(found[1]), reason=reason + limit)
        return dataclasses.replace(
            one,
            num_instances=found[0],
            num_replicas=found[0] * room,
            usd_per_h=found[0] * usd,
            numbers=_shown(found[1]),
            reason=f"${number(found[0] * usd)} an hour",
        )

    def _alone(self, pool: ServedPool) -> dict[str, Any]:
        """Return the numbers of requests that each have a replica to themselves; no load makes them better."""
        requests = self.trace.requests
        some = requests[:: max(len(requests) // NUM_ALONE, 1)]
        apart = tuple(dataclasses.replace(one, arrival_s=1e6 * number) for number, one in enumerate(some))
        return report_of(replay_trace(pool, dataclasses.replace(self.trace, requests=apart)), slo=self.slo)

    def _busy_replicas(self, pool: ServedPool) -> float:
        """Return how many replicas the work of the trace keeps busy at the least, with full batches."""
        step_s = (min(pool.step_s.values()) + pool.cost.step_s) / pool.num_rows + pool.cost.row_s
        chunk_s = min(min(slots.values()) / length for length, slots in pool.chunk_s.items())
        works_s = sorted(one.num_prompt * chunk_s + (one.num_answer - 1) * step_s for one in self.trace.requests)
        work_s = sum(works_s[: math.floor(self.slo.attainment * len(works_s))])
        after_s = 1e-3 * self.slo.longest_ms(max(one.num_answer for one in self.trace.requests))
        return work_s / (self.trace.span_s + after_s)


def _fewest(numbers_at: Callable[[int], dict[str, Any]], fewest: int, most: int) -> tuple[int, dict[str, Any]]:
    """Return the fewest instances that meet the objective, or the most that were tried, with their numbers."""
    low, step, high = fewest - 1, 1, fewest
    while not (numbers := numbers_at(high))["meets_slo"]:
        if high >= most:
            return high, numbers
        low, high, step = high, min(high + step, most), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        tried = numbers_at(middle)
        low, high, numbers = (low, middle, tried) if tried["meets_slo"] else (middle, high, numbers)
    return high, numbers


def _shown(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: numbers[name] for name in SHOWN}


def _misses(numbers: Mapping[str, Any], slo: SLO, who: str) -> str:
    """Say which times are above their limits."""
    times = {name: numbers[f"p99_{name}_ms"] for name in slo.limits_ms}
    over = [
        f"p99 {name} {number(value, digits=3)} ms"
        for name, value in times.items()
        if value is not None and value > slo.limits_ms[name]
    ]
    share = f"{100 * numbers['slo_attainment']:.1f} % of the requests keep the limits"
    rejected = f"{counted(sum(numbers['rejected'].values()), 'request')} rejected; " * any(numbers["rejected"].values())
    return f"{who}: {', '.join(over)}{'; ' * bool(over)}{rejected}{share}"


def _too_large(memory: Mapping[str, int], machine: Machine) -> str:
    total, room = sum(memory.values()) / 2**30, machine.hbm_bytes_per_core / 2**30
    return f"needs {total:.1f} of {room:.0f} GiB of each core"


def usd_of(machine: Machine) -> float:
    assert machine.price_usd_per_h is not None, "instances without a price are left out"
    return machine.price_usd_per_h
