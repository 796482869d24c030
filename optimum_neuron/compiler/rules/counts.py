"""Rulings grouped for people: calls of one operator that were judged alike, with the places they come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from ...core import Ruling, Verdict
from .location import merge_paths

PLACED = (Verdict.NATIVE, Verdict.DECOMPOSED)
"""Verdicts of calls that run on the device."""

_ORDER = (Verdict.UNSUPPORTED, Verdict.HOST, Verdict.DECOMPOSED, Verdict.NATIVE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpCount:
    """Calls of one operator that were judged alike."""

    op: str
    """Operator with overload."""
    count: int
    """How many calls."""
    verdict: Verdict
    """What happens to them."""
    rule: str
    """The rule that decided."""
    reason: str
    """Why."""
    source: str
    """Document the rule comes from."""
    code: str | None
    """The compiler's error code, for refusals and warnings."""
    remedy: str | None
    """What to do, for refusals."""
    module_paths: tuple[str, ...]
    """Where in the user's model; equal layers are joined ("model.layers.0-31.mlp")."""
    source_lines: tuple[str, ...]
    """file:line of the user's code, each once."""

    def where(self) -> str:
        """Module paths and source lines as one text."""
        paths = ", ".join(path or "top level" for path in self.module_paths) or "unknown module"
        return f"{paths} ({', '.join(self.source_lines)})" if self.source_lines else paths


def count_rulings(rulings: Iterable[Ruling]) -> tuple[OpCount, ...]:
    """Group rulings by operator and verdict: refusals first, as they appear, then the most frequent."""
    groups: dict[tuple[Any, ...], list[Ruling]] = {}
    for r in rulings:
        groups.setdefault(group_key(r), []).append(r)
    counts = [_count(group) for group in groups.values()]
    return tuple(sorted(counts, key=lambda c: (_ORDER.index(c.verdict), -c.count if c.verdict in PLACED else 0)))


def group_key(ruling: Ruling) -> tuple[Any, ...]:
    """What rulings that are counted together have in common."""
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
