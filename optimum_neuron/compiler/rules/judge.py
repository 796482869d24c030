"""The order of judgement: static shapes, the operator's own rule, dtypes, and torch's decomposition for the rest."""

from __future__ import annotations

import dataclasses

from ...core import Ruling, Verdict
from . import dtypes, shapes
from .base import OpCall, Target, find_rule, refuse
from .decompose import decompose

RULE = "decomposition-of-torch"
"""Name of the rule for operators that no module covers."""


def judge_call(call: OpCall, target: Target) -> Ruling:
    """Return the verdict on one call.

    An operator's own refusal comes before a refusal of its dtype, because its code is the more telling one.
    """
    rule = find_rule(call.op)
    if rule is not None and not rule.touches_data:
        return rule.judge(call, target)
    unknown_size = shapes.judge(call)
    if unknown_size is not None:
        return unknown_size
    ruling = rule.judge(call, target) if rule is not None else None
    if ruling is not None and ruling.verdict is Verdict.UNSUPPORTED:
        return ruling
    return dtypes.judge(call, target) or ruling or _judge_unknown(call, target)


def _judge_unknown(call: OpCall, target: Target) -> Ruling:
    """Judge an operator without a rule by what torch makes of it."""
    if not call.outputs and call.op.startswith("python."):
        return _accept(call, Verdict.NATIVE, "computes on sizes while compiling")
    parts = decompose(call)
    if not parts:
        return refuse(call, RULE, "NCC_EUOC002", "no rule knows this operator, and torch has no decomposition of it")
    for part in parts:
        inner = judge_call(part, target)
        if inner.verdict is Verdict.UNSUPPORTED:
            return dataclasses.replace(inner, op=call.op, reason=f"it is made of {part.op}: {inner.reason}",
                                       module_path=call.module_path, source_line=call.source_line)
    names = sorted({part.op for part in parts})
    return _accept(call, Verdict.DECOMPOSED, f"torch decomposes it into {', '.join(names)}")


def _accept(call: OpCall, verdict: Verdict, reason: str) -> Ruling:
    return Ruling(verdict=verdict, op=call.op, rule=RULE, reason=reason,
                  source="torch 2.13, core ATen decompositions", module_path=call.module_path,
                  source_line=call.source_line)
