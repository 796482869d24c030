"""Contents of a profile, as plain data: cores, graphs with their operators, and every call on one clock.

`recorder.py` makes it, `perfetto.py`, `report.py` and the command line show it. Every time is simulated except those
whose name begins with `host_`, which were measured on this machine; the host time of a call on an instance (`path_us`)
is simulated too.

    profile.device_us                      # simulated time of all calls
    profile.rows()[0].operator             # the operator that takes most of it
    Profile.from_json(profile.to_json())   # how a child process hands it over
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from .graph import GraphProfile
from .kernels import KernelEvent, KernelProfile
from .operators import OperatorTime
from .overview import overview
from .table import Row, rows_of

NOTEBOOK_ROWS = 20
"""Rows of the bottleneck table that a notebook shows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineRates:
    """Documented rates of one logical core of an instance."""

    instance: str
    target: str
    peak_flops_per_s: float
    dma_bytes_per_s: float
    hbm_bytes_per_s: float
    hbm_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallProfile:
    """One call, on the clock of host and cores, which begins with the first call."""

    graph: int
    """Index in `Profile.graphs`."""
    core_ids: tuple[int, ...]
    thread: int
    """Host thread of the call, counted from 0."""
    started_us: float
    ended_us: float
    """Start plus the simulated time of the call."""
    host_us: float
    """Measured time that this host took to simulate the call."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoreProfile:
    """Use of one core."""

    instance: str
    core_id: int
    models: tuple[str, ...]
    num_calls: int
    busy_us: float
    hbm_bytes: Mapping[str, int]
    """HBM that these models need on the core, by category."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """A run with simulated times."""

    name: str
    """Script, NEFF, or folder."""
    machines: tuple[MachineRates, ...]
    graphs: tuple[GraphProfile, ...]
    calls: tuple[CallProfile, ...]
    """Calls in the order of the clock."""
    cores: tuple[CoreProfile, ...]
    assumptions: tuple[str, ...]
    kernels: tuple[KernelProfile, ...] = ()
    """NKI kernels in these graphs, those of most time first."""
    notes: tuple[str, ...] = ()
    """Limits of this profile: missing parts and weak figures."""
    simulated: bool = True

    @functools.cached_property
    def device_us(self) -> float:
        """Simulated time of all calls on their cores."""
        return sum(graph.num_calls * graph.device_us for graph in self.graphs)

    @property
    def total_us(self) -> float:
        """Device and host of all calls, as estimates have them, one after the other; simulated."""
        return sum(graph.num_calls * graph.total_us for graph in self.graphs)

    @property
    def interval_us(self) -> tuple[float, float]:
        """80 % interval of `total_us`: calls of a class are wrong together."""
        totals = [(graph.num_calls * graph.total_us, graph) for graph in self.graphs]
        return sum(us * graph.low for us, graph in totals), sum(us * graph.high for us, graph in totals)

    @property
    def clock_us(self) -> float:
        """From the first call to the end of the last one."""
        return max((call.ended_us for call in self.calls), default=0.0)

    @property
    def host_between_us(self) -> float:
        """Time on the clock in which no core works: the program between its calls, measured on this machine."""
        busy, end = 0.0, 0.0
        for call in sorted(self.calls, key=lambda call: call.started_us):
            busy += max(0.0, call.ended_us - max(end, call.started_us))
            end = max(end, call.ended_us)
        return max(0.0, self.clock_us - busy)

    def rows(self) -> list[Row]:
        """The bottleneck table, longest first: equal operators of equal layers are one row, launches another."""
        return rows_of(self.graphs)

    def unknown_operators(self) -> dict[str, dict[str, float]]:
        """Operators whose work is not known: how often they ran, and their share of all operators that did."""
        ran = sum(graph.num_calls * len(graph.operators) for graph in self.graphs)
        counts: dict[str, int] = {}
        for graph in self.graphs:
            for one in graph.operators:
                if one.is_unknown:
                    counts[one.operator] = counts.get(one.operator, 0) + graph.num_calls
        return {name: {"num_calls": count, "share_of_calls": count / ran} for name, count in counts.items()}

    def to_dict(self, top: int | None = None) -> dict[str, Any]:
        """Plain data: the first `top` rows of the table, or all, graphs and cores; no single calls and operators."""
        low, high = self.interval_us
        rows = self.rows()
        return {
            "simulated": True,
            "name": self.name,
            "machines": [dataclasses.asdict(machine) for machine in self.machines],
            "device_us": self.device_us,
            "total_us": {"value": self.total_us, "low": low, "high": high},
            "clock_us": self.clock_us,
            "host_between_us": self.host_between_us,
            "num_calls": len(self.calls),
            "graphs": [
                {key: value for key, value in dataclasses.asdict(graph).items() if key != "operators"}
                | {"total_us": graph.total_us, "num_operators": len(graph.operators), "num_unknown": graph.num_unknown}
                for graph in self.graphs
            ],
            "operators": [dataclasses.asdict(row) for row in rows[:top]],
            "num_rows": len(rows),
            "cores": [dataclasses.asdict(core) for core in self.cores],
            "kernels": [
                {key: value for key, value in dataclasses.asdict(kernel).items() if key != "events"}
                for kernel in self.kernels
            ],
            "unknown_operators": self.unknown_operators(),
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
        }

    def _repr_html_(self) -> str:
        """Show the totals, the longest rows, and the notes in a notebook; `report.page` draws the calls besides."""
        from ..pages import embedded

        return embedded(overview(self.to_dict(top=NOTEBOOK_ROWS)), height=480)

    def to_json(self) -> str:
        """Everything, for another process."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Profile:
        """Inverse of `to_json`."""
        data = {key: tuple(part) if isinstance(part, list) else part for key, part in json.loads(text).items()}
        for graph in data["graphs"]:
            graph["operators"] = tuple(OperatorTime(**one) for one in graph["operators"])
        parts: dict[str, Any] = {
            "machines": tuple(MachineRates(**machine) for machine in data["machines"]),
            "graphs": tuple(GraphProfile(**graph) for graph in data["graphs"]),
            "calls": tuple(CallProfile(**{**call, "core_ids": tuple(call["core_ids"])}) for call in data["calls"]),
            "cores": tuple(CoreProfile(**{**core, "models": tuple(core["models"])}) for core in data["cores"]),
        }
        for kernel in data["kernels"]:
            kernel["events"] = tuple(KernelEvent(*event) for event in kernel["events"])
        parts["kernels"] = tuple(KernelProfile(**kernel) for kernel in data["kernels"])
        return cls(**{**data, **parts})


def nothing_ran(name: str) -> ConfigError:
    """Return the error for a run that used no simulated core of this process."""
    message = f"{name} used no simulated core in this process, so there is nothing to profile."
    hint = 'Run a compiled model in it, or move a module to the device "neuron".'
    return ConfigError(message, hint=hint, profile=name)
