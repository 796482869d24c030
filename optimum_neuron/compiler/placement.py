"""The operators of captured graphs with verdict, count, share of the arithmetic, and the modules they come from.

A stack of which only some layers were captured counts with all of them. It does not depend on models or files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ..base.core import Ruling
from ..hardware import Target
from .capture import Captured
from .rules import PLACED, OpCount, base_name, can_be_hosted, count_rulings, find_rule, group_key, judge_nodes
from .work import CallWork, work_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgedCall:
    """One call of an operator in a run of one graph."""

    ruling: Ruling
    """Verdict of the target; the module path is the one in the user's model."""
    work: CallWork
    moved_bytes: int
    """Bytes of the tensors that it takes and returns; those whose size is not known at compile time are left out."""

    @property
    def placed(self) -> bool:
        """Whether it runs on the device."""
        return self.ruling.verdict in PLACED


@dataclasses.dataclass(frozen=True, kw_only=True)
class OperatorCheck:
    """Calls of one operator that were judged alike, in one run of every graph."""

    calls: OpCount
    """Count, verdict, reason, remedy and places."""
    flops: int
    """Their FLOPs, as counted by `work.py`."""
    moved_bytes: int
    """Bytes of the tensors that they take and return, before any fusion."""
    counted: str
    """"products", "elements", "none" or "unknown"."""
    share: float
    """Part of the arithmetic of all graphs, 0 to 1."""

    @property
    def host_name(self) -> str | None:
        """Name of the operator in `allow_host_ops`, for example "aten::sort"; None where the host cannot take it."""
        return base_name(self.calls.op).replace(".", "::", 1) if can_be_hosted(self.calls) else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            **dataclasses.asdict(self.calls),
            "host_name": self.host_name,
            "verdict": str(self.calls.verdict),
            "flops": self.flops,
            "moved_bytes": self.moved_bytes,
            "flops_counted": self.counted,
            "flops_share": self.share,
        }


def judged_calls(
    captured: Captured,
    target: Target,
    *,
    allow_host_ops: Collection[str] = (),
    implicit_integer_downcast: Collection[str] = (),
    prefixes: Sequence[str] = (),
) -> list[JudgedCall]:
    """Judge the calls of a captured graph as `check_graph` does, including the omitted layers.

    Of `prefixes`, paths of the user's model inside the captured module, the first that fits is cut off a path.
    """
    judged = []
    for call, ruling in judge_nodes(
        captured.exported, target, allow_host_ops=allow_host_ops, implicit_integer_downcast=implicit_integer_downcast
    ):
        rule = None if call is None else find_rule(call.op)
        if rule is not None and not rule.touches_data:
            continue
        work = CallWork(flops=0, counted="unknown") if call is None else work_of(call)
        moved_bytes = sum(spec.size_bytes for spec in (call.tensors if call else ()) if -1 not in spec.shape)
        for path in _paths(ruling.module_path, captured):
            path = path if path is None else _cut(path, prefixes)
            ruling = dataclasses.replace(ruling, module_path=path)
            judged.append(JudgedCall(ruling=ruling, work=work, moved_bytes=moved_bytes))
    return judged


def group_calls(calls: Iterable[JudgedCall]) -> tuple[OperatorCheck, ...]:
    """Group calls by operator and verdict: operators off the device first, then by FLOPs."""
    groups: dict[tuple[Any, ...], list[JudgedCall]] = {}
    for call in calls:
        groups.setdefault((*group_key(call.ruling), call.work.counted), []).append(call)
    total = sum(call.work.flops for group in groups.values() for call in group)
    checks = [_group(group, total) for group in groups.values()]
    return tuple(sorted(checks, key=lambda c: (c.calls.verdict in PLACED, -c.flops)))


def placed_share(calls: Sequence[JudgedCall]) -> float:
    """Part of the arithmetic that runs on the device, 0 to 1; of the calls where nothing computes."""
    total = sum(call.work.flops for call in calls)
    if total:
        return sum(call.work.flops for call in calls if call.placed) / total
    return sum(call.placed for call in calls) / len(calls) if calls else 1.0


def _group(group: Sequence[JudgedCall], total: int) -> OperatorCheck:
    (count,) = count_rulings(call.ruling for call in group)
    flops = sum(call.work.flops for call in group)
    return OperatorCheck(
        calls=count,
        flops=flops,
        moved_bytes=sum(call.moved_bytes for call in group),
        counted=group[0].work.counted,
        share=flops / total if total else 0.0,
    )


def _paths(path: str | None, captured: Captured) -> tuple[str | None, ...]:
    """The paths that one captured call stands for."""
    if path is None:
        return (None,)
    stack = next((stack for stack in captured.stacks if path.startswith(f"{stack.path}.")), None)
    return (path,) if stack is None else stack.alike(path)


def _cut(path: str, prefixes: Sequence[str]) -> str:
    """A path inside the user's model; wrappers around the model count as its top level."""
    if not prefixes:
        return path
    return next((path.removeprefix(f"{prefix}.") for prefix in prefixes if path.startswith(f"{prefix}.")), "")
