"""The order of judgement: static shapes, dense layouts, its own rule, dtypes, constants, torch's decomposition."""

from __future__ import annotations

import dataclasses

from ...core import Ruling, Verdict
from . import constants, dtypes, shapes
from .base import OpCall, Target, find_rule, refuse
from .decompose import decompose

RULE = "decomposition-of-torch"
"""Name of the rule for operators that no module covers."""


def judge_call(call: OpCall, target: Target) -> Ruling:
    """Return the verdict on one call.

    An operator's own refusal comes before a refusal of its dtype, because its code says more.
    """
    rule = find_rule(call.op)
    if rule is not None and not rule.touches_data:
        return rule.judge(call, target)
    unrunnable = shapes.judge(call) or _judge_layout(call)
    if unrunnable is not None:
        return unrunnable
    ruling = rule.judge(call, target) if rule is not None else None
    if ruling is not None and ruling.verdict is Verdict.UNSUPPORTED:
        return ruling
    return dtypes.judge(call, target) or constants.judge(call) or ruling or _judge_unknown(call, target)


def _judge_layout(call: OpCall) -> Ruling | None:
    if not call.sparse:
        return None
    return refuse(
        call,
        "layout",
        "NCC_EUOC002",
        "a NeuronCore has dense tensors only",
        remedy="convert the tensors with .to_dense() before compiling, and multiply by masks",
    )


def _judge_unknown(call: OpCall, target: Target) -> Ruling:
    """Judge an operator without a rule by what torch makes of it."""
    if not call.outputs and call.op.startswith("python."):
        return _accept(call, Verdict.NATIVE, "computes on sizes while compiling")
    parts = decompose(call)
    if parts is None:
        return refuse(call, RULE, "NCC_EUOC002", "no rule knows this operator, and torch cannot decompose it")
    if not parts:
        return _accept(call, Verdict.NATIVE, "does no work")
    for part in parts:
        inner = judge_call(part, target)
        if inner.verdict is Verdict.UNSUPPORTED:
            return dataclasses.replace(
                inner,
                op=call.op,
                reason=f"it is made of {part.op}: {inner.reason}",
                module_path=call.module_path,
                source_line=call.source_line,
            )
    names = sorted({part.op for part in parts})
    return _accept(call, Verdict.DECOMPOSED, f"torch decomposes it into {', '.join(names)}")


def _accept(call: OpCall, verdict: Verdict, reason: str) -> Ruling:
    return Ruling(
        verdict=verdict,
        op=call.op,
        rule=RULE,
        reason=reason,
        source="torch 2.13, core ATen decompositions",
        module_path=call.module_path,
        source_line=call.source_line,
    )
