"""Reductions and running sums."""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, accept, rule, table

table(
    "reduction",
    {
        "aten._cdist_forward": "Sub Abs Pow Reduce",
        "aten._pdist_forward": "Sub Abs Pow Reduce",
        "aten._trilinear": "Mul Reduce",
        "aten.all": "Reduce",
        "aten.amax": "Reduce",
        "aten.amin": "Reduce",
        "aten.any": "Reduce",
        "aten.argmax": "AwsNeuronArgMax",
        "aten.argmin": "AwsNeuronArgMin",
        "aten.bucketize": "Compare Reduce",
        "aten.cdist": "Sub Abs Pow Reduce",
        "aten.cumprod": "ReduceWindow",
        "aten.cumsum": "ReduceWindow",
        "aten.mean": "Reduce Div",
        "aten.prod": "Reduce",
        "aten.searchsorted": "Compare Reduce",
        "aten.sum": "Reduce",
        "aten.var": "Reduce Sub Mul Div",
        "aten.var_mean": "Reduce Sub Mul Div",
    },
)


@rule("extremum", "aten.max", "aten.min")
def judge(call: OpCall, target: Target) -> Ruling:
    """One name for three operators: of a whole tensor, along a dimension with positions, and of two tensors."""
    which = "Max" if call.name == "aten.max" else "Min"
    if len(call.outputs) == 2:
        return accept(call, "extremum", f"Reduce AwsNeuronArg{which}")
    return accept(call, "extremum", which if len(call.inputs) == 2 else "Reduce")
