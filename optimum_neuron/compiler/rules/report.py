"""The operator check of a whole graph: every call gets a ruling, and all refusals are raised at once.

A refused operator runs on the host only when `allow_host_ops` names it, never silently.

Example:
    ```python
    import torch
    from optimum_neuron.compiler.rules.report import check_graph
    from optimum_neuron.hardware import resolve_target

    class Sorts(torch.nn.Module):
        def forward(self, x):
            return torch.sort(x).values * 2

    exported = torch.export.export(Sorts(), (torch.randn(4, 8),), strict=False)
    target = resolve_target("inf2").value
    assert [r.code for r in check_graph(exported, target).refused] == ["NCC_EVRF001"]
    assert not check_graph(exported, target, allow_host_ops={"aten::sort"}).refused
    ```
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...base.core import Ruling, Verdict
from ...base.wording import counted
from ...errors import ConfigError, UnsupportedOperatorError, nearest
from ...hardware import Target
from .call import OpCall, base_name, merge_paths, not_exported, symbols
from .codes import CODES, DOWNCASTS, ON_HOST
from .constants import mark_constants
from .judge import USES, judge_call, judge_input

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node


PLACED = (Verdict.NATIVE, Verdict.DECOMPOSED)
"""Verdicts of calls that run on the device."""

_ORDER = (Verdict.UNSUPPORTED, Verdict.HOST, Verdict.DECOMPOSED, Verdict.NATIVE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpCount:
    """Calls of one operator with the same verdict, and the shared parts of their rulings."""

    op: str
    count: int
    verdict: Verdict
    rule: str
    reason: str
    source: str
    code: str | None
    remedy: str | None
    module_paths: tuple[str, ...]
    """Locations in the user's model; equal layers are joined ("model.layers.0-31.mlp")."""
    source_lines: tuple[str, ...]
    """file:line of the user's code, each once."""

    def where(self) -> str:
        """Module paths and source lines as one text."""
        paths = ", ".join(path or "top level" for path in self.module_paths) or "unknown module"
        return f"{paths} ({', '.join(self.source_lines)})" if self.source_lines else paths


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The rulings on a graph, in its order."""

    target: str
    rulings: tuple[Ruling, ...]
    """One for each call, and one for each graph input whose size is unknown."""

    @property
    def refused(self) -> tuple[Ruling, ...]:
        """Calls that cannot run."""
        return tuple(r for r in self.rulings if r.verdict is Verdict.UNSUPPORTED)

    @property
    def hosted(self) -> tuple[Ruling, ...]:
        """Calls that run on the host, because they were allowed to."""
        return tuple(r for r in self.rulings if r.verdict is Verdict.HOST)

    @property
    def placed_share(self) -> float:
        """Share of the calls that run on the device, 0 to 1; 1 for an empty graph."""
        placed = sum(r.verdict in PLACED for r in self.rulings)
        return placed / len(self.rulings) if self.rulings else 1.0

    def counts(self) -> tuple[OpCount, ...]:
        """Calls by operator and verdict: refusals first, as they appear, then the most frequent."""
        return count_rulings(self.rulings)

    def table(self) -> str:
        """The counts as text for people."""
        counts = self.counts()
        width = max(map(len, ("operator", *(c.op for c in counts))))
        lines = [f"{'operator':<{width}}  calls  verdict      reason"]
        for c in counts:
            lines.append(f"{c.op:<{width}}  {c.count:>5}  {c.verdict:<11}  {f'{c.code}: ' if c.code else ''}{c.reason}")
            if c.code:
                lines.append(f"{'':<{width}}         where: {c.where()}")
            if c.remedy:
                lines.append(f"{'':<{width}}         do: {c.remedy}")
        share = f"{self.placed_share:.1%} of {len(self.rulings)} calls run on {self.target}"
        return "\n".join([*lines, f"{share}; {len(self.refused)} are refused."])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {
            "target": self.target,
            "num_calls": len(self.rulings),
            "num_refused": len(self.refused),
            "placed_share": self.placed_share,
            "operators": [dataclasses.asdict(c) | {"verdict": str(c.verdict)} for c in self.counts()],
        }

    def raise_for_refusals(self, on_host: str = ON_HOST) -> None:
        """Raise one error that lists every refusal, if there is any.

        Args:
            on_host: how a user of the calling program runs an operator on the host.
        """
        refused = [c for c in self.counts() if c.verdict is Verdict.UNSUPPORTED]
        if not refused:
            return
        hosted = ", ".join(sorted({repr(base_name(c.op).replace(".", "::")) for c in refused if can_be_hosted(c)}))
        names = f"={{{hosted}}}" if on_host == ON_HOST else ""
        host = f", or run them {on_host}{names}" if hosted else ""
        header = f"{self.target} cannot run {counted(sum(c.count for c in refused), 'call')} of this graph:"
        raise UnsupportedOperatorError(
            "\n".join([header, *(_paragraph(c, on_host) for c in refused)]),
            hint=f"Change these calls{host}.",
            **self.to_dict(),
        )


def check_graph(
    graph: GraphModule | ExportedProgram,
    target: Target,
    *,
    allow_host_ops: Collection[str] = (),
    implicit_integer_downcast: Collection[str] = (),
) -> Report:
    """Judge every call of an exported graph and of the graphs inside it.

    Args:
        graph: a `torch.export` program, or its graph module.
        allow_host_ops: operators that may run on the host when refused, as "aten::sort" or "aten.sort".
        implicit_integer_downcast: kinds of integer operators that may lose digits, as in the compiler's
            --implicit-integer-downcast: "dot", "scatter", "pow" ..., "all" or "none".
    """
    allowed: Any = {"allow_host_ops": allow_host_ops, "implicit_integer_downcast": implicit_integer_downcast}
    return Report(target=target.name, rulings=tuple(r for _, r in judge_nodes(graph, target, **allowed)))


def judge_nodes(
    graph: GraphModule | ExportedProgram,
    target: Target,
    *,
    allow_host_ops: Collection[str] = (),
    implicit_integer_downcast: Collection[str] = (),
) -> Iterator[tuple[OpCall | None, Ruling]]:
    """Yield each call with its ruling, and None with the ruling on a graph input; arguments as in `check_graph`."""
    from torch.fx import GraphModule

    hosted = host_ops(allow_host_ops)
    narrowed = _downcasts(implicit_integer_downcast)
    module = graph if isinstance(graph, GraphModule) else graph.graph_module
    if not isinstance(graph, GraphModule):
        mark_constants(graph)
    for node in _nodes(module):
        if node.op == "placeholder" and node.graph is module.graph and symbols([node.meta.get("val")]):
            yield None, judge_input(node)
        elif node.op == "call_function":
            call = OpCall.from_node(node)
            yield call, _relaxed(judge_call(call, target), hosted, narrowed)


def _nodes(module: GraphModule) -> Iterator[Node]:
    from torch.fx import GraphModule

    for child in module.modules():
        if not isinstance(child, GraphModule):
            continue
        for node in child.graph.nodes:
            if node.op in ("call_module", "call_method"):
                raise not_exported(node, f"is a {node.op}, not an ATen operator")
            yield node


def _relaxed(ruling: Ruling, hosted: frozenset[str], narrowed: frozenset[str]) -> Ruling:
    """Apply the user's permissions to a ruling."""
    if ruling.verdict is not Verdict.UNSUPPORTED:
        return ruling
    downcast = CODES[ruling.code].downcast if ruling.code else None
    if downcast in narrowed:
        verdict, cause = Verdict.NATIVE, f"allowed by --implicit-integer-downcast={downcast}"
    elif base_name(ruling.op) in hosted and ruling.rule != USES:
        verdict, cause = Verdict.HOST, "allow_host_ops sends it to the host"
    else:
        return ruling
    return dataclasses.replace(ruling, verdict=verdict, remedy=None, reason=f"{ruling.reason}; {cause}")


def host_ops(names: Collection[str]) -> frozenset[str]:
    """Return the base names of operators that a user allows on the host."""
    if not names:
        return frozenset()
    from ...upstream.torch import dispatch_get_all_op_names

    known = {base_name(name.replace("::", ".")) for name in dispatch_get_all_op_names()}
    operators = {name: base_name(name.replace("::", ".")) for name in names}
    _refuse_unknown("allow_host_ops", operators, known, hint='Name operators like "aten::sort".')
    return frozenset(operators.values())


def _downcasts(kinds: Collection[str]) -> frozenset[str]:
    allowed = (*DOWNCASTS, "all", "none")
    values = {kind: kind for kind in kinds}
    _refuse_unknown("implicit_integer_downcast", values, allowed, hint=f"Choose from {', '.join(allowed)}.")
    return frozenset(DOWNCASTS if "all" in kinds else kinds)


def _refuse_unknown(option: str, values: dict[str, str], known: Collection[str], *, hint: str) -> None:
    """Raise an error for unknown values, as written and as parsed, each with the nearest known one."""
    if unknown := sorted(name for name, meant in values.items() if meant not in known):
        text = "; ".join(f"'{name}'{nearest(values[name], known)}" for name in unknown)
        message = f"{option} has unknown values ({text})."
        raise ConfigError(message, hint=hint, option=option, value=sorted(values), unknown=unknown)


def _paragraph(count: OpCount, on_host: str) -> str:
    advice = f"\n    do: {count.remedy.replace(ON_HOST, on_host)}" if count.remedy else ""
    return (
        f"  {f'{count.code} ' if count.code else ''}{count.op}, {counted(count.count, 'call')}\n"
        f"    where: {count.where()}\n    why: {count.reason}{advice}"
    )


def can_be_hosted(count: OpCount) -> bool:
    """Return whether `allow_host_ops` can send refused calls to the host."""
    return count.rule != USES and not count.op.startswith(("higher_order.", "graph input"))


def count_rulings(rulings: Iterable[Ruling]) -> tuple[OpCount, ...]:
    """Group rulings by operator and verdict: refusals first, as they appear, then the most frequent."""
    groups: dict[tuple[Any, ...], list[Ruling]] = {}
    for r in rulings:
        groups.setdefault(group_key(r), []).append(r)
    counts = [_count(group) for group in groups.values()]
    return tuple(sorted(counts, key=lambda c: (_ORDER.index(c.verdict), c.verdict in PLACED and -c.count)))


def group_key(ruling: Ruling) -> tuple[Any, ...]:
    """Shared parts of rulings that are counted together."""
    return ruling.op, ruling.verdict, ruling.rule, ruling.reason, ruling.code


def _count(group: list[Ruling]) -> OpCount:
    first = group[0]
    return OpCount(
        op=first.op,
        count=len(group),
        verdict=first.verdict,
        rule=first.rule,
        reason=first.reason,
        source=first.source,
        code=first.code,
        remedy=first.remedy,
        module_paths=merge_paths(r.module_path for r in group if r.module_path is not None),
        source_lines=tuple(dict.fromkeys(r.source_line for r in group if r.source_line is not None)),
    )
