"""Result of a check: tier, share of FLOPs on the device, operators, memory, and conditions for a CI job."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..base.core import Choice, Verdict
from ..errors import ConfigError, nearest

if TYPE_CHECKING:
    from ..compiler import MemoryNeed, OperatorCheck
    from ..hardware import InstanceSpec, Target
    from ..options.configuration import CompileConfig

FAIL_CONDITIONS = ("host", "unsupported", "memory")
"""Conditions of `CheckReport.failures`: calls on the host, calls or code that cannot run, too little HBM."""

TIERS = {1: "drop-in", 2: "substitutions needed", 3: "not expressible"}
"""Effort that a model takes, by number."""


def require_conditions(conditions: Collection[str]) -> tuple[str, ...]:
    """Return the conditions, all of which must be in `FAIL_CONDITIONS`."""
    unknown = [name for name in conditions if name not in FAIL_CONDITIONS]
    if unknown:
        lines = [f"Unknown condition '{name}'{nearest(name, FAIL_CONDITIONS) or '.'}" for name in unknown]
        details = {"conditions": unknown, "choices": list(FAIL_CONDITIONS)}
        raise ConfigError("\n".join(lines), hint=f"Choose from {', '.join(FAIL_CONDITIONS)}.", **details)
    return tuple(conditions)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphCheck:
    """Check of one entry point."""

    name: str
    """For example "prefill_128"."""
    num_calls: int
    """Calls of operators in one run."""
    flops: int
    """FLOPs of one run, as counted by `work.py`."""
    placed_share: float
    """Share of FLOPs on the device, 0 to 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaptureFailure:
    """Code that cannot become a static graph."""

    graphs: tuple[str, ...]
    """Entry points that cannot be captured; empty if the model could not be built."""
    source_line: str | None
    """file:line and text of the user's code; None if the configuration is at fault."""
    reason: str
    """Message of the error, with the hint."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryCheck:
    """HBM of each core that has the model, simulated."""

    need: MemoryNeed | None
    """Bytes that the compiled program needs, by category; None if not known."""
    available: int
    """HBM of one core in bytes."""
    reason: str
    """Reason: it fits, what would make it fit, or why memory is unknown."""

    @property
    def fits(self) -> bool | None:
        """Whether the model fits one core; None where it is not known."""
        return None if self.need is None else self.need.total <= self.available

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        need = {} if self.need is None else {**dataclasses.asdict(self.need), "total": self.need.total}
        return {"fits": self.fits, "reason": self.reason, "hbm_bytes": {**need, "available": self.available}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckReport:
    """Result of checking a model; nothing is compiled and no weight is read."""

    model: str
    """Folder or Hub model ID."""
    task: Choice[str]
    family: Choice[str] | None
    """Implementation of the model; None if it could not be built."""
    target: Choice[Target]
    instance: InstanceSpec
    """Simulated instance, whose HBM is compared."""
    config: CompileConfig
    """Complete compile configuration."""
    graphs: tuple[GraphCheck, ...]
    """Captured entry points, without those of `buckets_between`."""
    buckets_between: Mapping[str, tuple[int, ...]]
    """Buckets whose graphs were not captured, by option: all between the smallest and the largest."""
    operators: tuple[OperatorCheck, ...]
    """Operators of these graphs; host and unsupported operators come first, then by FLOPs."""
    capture_failures: tuple[CaptureFailure, ...]
    """Code that is not static; with any of these the model cannot be compiled."""
    num_cores: Choice[int] | None
    """Cores that share the model; None where its memory is not known."""
    memory: MemoryCheck

    @property
    def placed_share(self) -> float | None:
        """Part of the captured graphs' arithmetic that runs on the device, 0 to 1; None where a capture failed."""
        if self.capture_failures:
            return None
        total = sum(graph.flops for graph in self.graphs)
        return sum(graph.placed_share * graph.flops for graph in self.graphs) / total if total else 1.0

    @property
    def tier(self) -> int:
        """1 drop-in, 2 substitutions needed, 3 not expressible."""
        if self.capture_failures:
            return 3
        return 2 if self._having(Verdict.UNSUPPORTED, Verdict.HOST) else 1

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the model is in its tier, one for each obstacle."""
        reasons = [f"cannot be captured: {failure.source_line or failure.reason}" for failure in self.capture_failures]
        for calls in (operator.calls for operator in self._having(Verdict.UNSUPPORTED, Verdict.HOST)):
            reasons.append(f"{calls.verdict}: {calls.op}, {calls.count} calls in {calls.where()}")
        return tuple(reasons) or (f"every operator runs on {self.target.value.name}",)

    def failures(self, conditions: Collection[str]) -> tuple[str, ...]:
        """Conditions that are met, of those that a CI job should fail on.

        Args:
            conditions: of `FAIL_CONDITIONS`.
        """
        require_conditions(conditions)
        met = {
            "host": bool(self._having(Verdict.HOST)),
            "unsupported": bool(self.capture_failures or self._having(Verdict.UNSUPPORTED)),
            "memory": self.memory.fits is False,
        }
        return tuple(name for name in FAIL_CONDITIONS if name in conditions and met[name])

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and for `--json`."""
        return {
            "model": self.model,
            "tier": {"value": self.tier, "name": TIERS[self.tier], "reasons": list(self.reasons)},
            "placed_share": self.placed_share,
            "task": self.task.to_dict(),
            "family": None if self.family is None else self.family.to_dict(),
            "target": self.target.to_dict(),
            "instance": self.instance.name,
            "config": self.config.to_dict(),
            "graphs": [dataclasses.asdict(graph) for graph in self.graphs],
            "buckets_between": {name: list(buckets) for name, buckets in self.buckets_between.items()},
            "operators": [operator.to_dict() for operator in self.operators],
            "capture_failures": [dataclasses.asdict(failure) for failure in self.capture_failures],
            "num_cores": None if self.num_cores is None else self.num_cores.to_dict(),
            "memory": self.memory.to_dict(),
            "simulated": True,
        }

    def _repr_html_(self) -> str:
        from ..pages import check_page, embedded

        return embedded(check_page(self.to_dict()))

    def _having(self, *verdicts: Verdict) -> list[OperatorCheck]:
        return [operator for operator in self.operators if operator.calls.verdict in verdicts]
