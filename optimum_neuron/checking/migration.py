"""What changes for a model that moves from one instance to another: places of operators, numbers, memory, options.

report = check_migration("bert", "inf1", "inf2", sequence_length=128)
report.moved[0].after  # "core"
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base.core import Verdict
from ..compiler import OperatorCheck
from ..errors import ConfigError
from ..hardware import GIB, Target, resolve_target
from .check import check_model
from .report import CheckReport

PLACES = {
    Verdict.NATIVE: "core",
    Verdict.DECOMPOSED: "core",
    Verdict.HOST: "CPU",
    Verdict.UNSUPPORTED: "not supported",
}
"""Where calls of each verdict run."""
ABSENT = "not in the graph"
CASTS = {"none": "as in the model", "matmul": "products in {}", "all": "everything in {}"}
"""Rounding of float32, by auto_cast."""
INF1 = "inf1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OperatorMove:
    """The calls of one operator on both instances."""

    op: str
    before: str
    """Place on the first instance: "core", "CPU", "not supported", or "not in the graph"."""
    after: str
    """Place on the other one."""
    num_calls: int
    """Calls in one run of every graph, on the first instance if it has any."""
    reason: str
    """Why calls do not run on a core; empty where they do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MigrationReport:
    """Both checks of a model, and what differs."""

    before: CheckReport | None
    """Check for the first instance; None if the model cannot be compiled for it."""
    after: CheckReport
    """Check for the other one."""
    source: Target
    refused_because: str | None
    """Why the model cannot be compiled for the first instance; None if it can."""

    @property
    def operators(self) -> tuple[OperatorMove, ...]:
        """Operators of the model, moved ones first."""
        rows = _moves({} if self.before is None else _by_op(self.before), _by_op(self.after))
        return tuple(sorted(rows, key=lambda row: row.before == row.after))

    @property
    def moved(self) -> tuple[OperatorMove, ...]:
        """Operators that run elsewhere on the other instance."""
        return tuple(row for row in self.operators if row.before != row.after and self.before is not None)

    @property
    def facts(self) -> dict[str, tuple[str, str]]:
        """Numerics, memory, and cores on both instances, by subject."""
        target = self.after.target.value
        both = {name: (_fact(self.source), _fact(target)) for name, _fact in _FACTS.items()}
        rounding = "not compiled" if self.before is None else _rounding(self.before)
        both["float32"] = (rounding, _rounding(self.after))
        if self.before is not None and self.before.memory.need and self.after.memory.need:
            needs = (self.before.memory.need.total, self.after.memory.need.total)
            both["memory that the model needs"] = (_gib(needs[0]), _gib(needs[1]))
        return both

    @property
    def changes(self) -> tuple[str, ...]:
        """What a user has to do, in order."""
        name, target = self.after.instance.name, self.after.target.value
        steps = []
        if self.before is None:
            steps.append(f"Export the model: {self.source.name} cannot run it ({self.refused_because})")
        if self.source.core.generation != target.core.generation:
            steps.append(
                f"Compile again with instance_type={name}: NEFFs of {self.source.core.name} do not run on "
                f"{target.core.name}."
            )
        hosted = [row.op for row in self.moved if row.before == "CPU" and row.after == "core"]
        if hosted:
            steps.append(f"Drop allow_host_ops and op_whitelist: {', '.join(hosted)} run on the core.")
        lacking = [row.op for row in self.operators if row.after == "not supported"]
        if lacking:
            steps.append(f"Change the model, or allow on the host with allow_host_ops: {', '.join(lacking)}.")
        if self.before is not None and _rounding(self.before) != _rounding(self.after):
            cast = self.before.config
            steps.append(
                f"For the numbers of {self.source.name}, pass auto_cast={cast.auto_cast} and "
                f"auto_cast_type={cast.auto_cast_type}; without them, float32 is computed so: {_rounding(self.after)}."
            )
        if INF1 in (self.source.name, target.name) and self.source.name != target.name:
            steps.append(_SCRIPTS[self.source.name == INF1])
        return tuple(steps)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "simulated": True,
            "model": self.after.model,
            "from": self.source.name,
            "to": self.after.target.value.name,
            "refused_because": self.refused_because,
            "operators": [dataclasses.asdict(row) for row in self.operators],
            "facts": {name: {"from": before, "to": after} for name, (before, after) in self.facts.items()},
            "changes": list(self.changes),
            "before": None if self.before is None else self.before.to_dict(),
            "after": self.after.to_dict(),
        }

    def _repr_html_(self) -> str:
        from ..pages import embedded, move_page

        return embedded(move_page(self.to_dict()))


_SCRIPTS = {
    True: (
        "In scripts, import torch_neuronx for torch_neuron, and drop the arguments that divide a model (fallback, "
        "op_whitelist, minimum_segment_size, --neuroncore-pipeline-cores); see docs/inf1_to_inf2.md."
    ),
    False: "In scripts, import torch_neuron for torch_neuronx; see docs/torch_neuron.md.",
}
"""Advice for scripts, by whether Inf1 is where the model comes from."""
_FACTS = {
    "cores of a chip": lambda target: str(target.logical_cores_per_chip()),
    "memory of a chip": lambda target: f"{_gib(target.chip.hbm_bytes)} {target.chip.memory}",
    "memory of a core": lambda target: (
        "shared by the cores of the chip" if target.shares_memory else _gib(target.hbm_bytes_per_core())
    ),
    "16-bit peak of a core": lambda target: (
        f"{target.chip.tflops['bfloat16'] / target.logical_cores_per_chip():.4g} TFLOPS"
    ),
}


def check_migration(
    model_name_or_path: str | Path, source: str, target: str, *, all_graphs: bool = False, **options: Any
) -> MigrationReport:
    """Check a model for two instances and report what differs, without weights and without compiling.

    Args:
        model_name_or_path: as for `check_model`.
        source: instance or family that the model runs on, for example "inf1".
        target: instance or family that it moves to, for example "inf2".
        all_graphs: as for `check_model`.
        **options: options of `main_export` that set shapes and dtypes, for both.

    Raises:
        ConfigError: an option is unknown, or the model cannot be compiled for `target`.
        ModelError: the model cannot be found, or its task cannot be exported.
    """
    family = resolve_target(source).value
    before, refused = None, None
    try:
        before = check_model(model_name_or_path, all_graphs=all_graphs, **{**options, "instance_type": source})
    except ConfigError as error:
        if family.compilable or error.details.get("target") != family.name:
            raise
        refused = error.message
    after = check_model(model_name_or_path, all_graphs=all_graphs, **{**options, "instance_type": target})
    return MigrationReport(before=before, after=after, source=family, refused_because=refused)


def _by_op(report: CheckReport) -> dict[str, list[OperatorCheck]]:
    groups: dict[str, list[OperatorCheck]] = {}
    for row in report.operators:
        groups.setdefault(row.calls.op, []).append(row)
    return groups


def _moves(before: Mapping[str, list[OperatorCheck]], after: Mapping[str, list[OperatorCheck]]) -> list[OperatorMove]:
    rows = []
    for op in dict.fromkeys((*before, *after)):
        groups = (before.get(op, []), after.get(op, []))
        places = [_place(group) for group in groups]
        reasons = [row.calls.reason for group in groups for row in group if PLACES[row.calls.verdict] != "core"]
        calls = sum(row.calls.count for row in groups[0] or groups[1])
        rows.append(
            OperatorMove(op=op, before=places[0], after=places[1], num_calls=calls, reason="".join(reasons[:1]))
        )
    return rows


def _place(rows: list[OperatorCheck]) -> str:
    """Return the place of the calls that are furthest from a core."""
    order = ("not supported", "CPU", "core")
    return min((PLACES[row.calls.verdict] for row in rows), key=order.index, default=ABSENT)


def _rounding(report: CheckReport) -> str:
    config = report.config
    if config.torch_dtype != "float32":
        return f"weights are {config.torch_dtype}"
    return CASTS[config.auto_cast].format(config.auto_cast_type)


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.3g} GiB"
