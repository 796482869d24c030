"""Reductions and running sums."""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, accept, rule, table

table(
    "reduction",
    {
        "Sub Abs Pow Reduce": "_cdist_forward _pdist_forward cdist",
        "Mul Reduce": "_trilinear",
        "Reduce": "all amax amin any prod sum",
        "AwsNeuronArgMax": "argmax",
        "AwsNeuronArgMin": "argmin",
        "Compare Reduce": "bucketize searchsorted",
        "ReduceWindow": "cumprod cumsum",
        "Reduce Div": "mean",
        "Reduce Sub Mul Div": "var var_mean",
    },
)


@rule("extremum", "max min")
def judge(call: OpCall, target: Target) -> Ruling:
    """One name for three operators: of a whole tensor, along a dimension with positions, and of two tensors."""
    which = "Max" if call.name == "aten.max" else "Min"
    if len(call.outputs) == 2:
        return accept(call, "extremum", f"Reduce AwsNeuronArg{which}")
    return accept(call, "extremum", which if len(call.inputs) == 2 else "Reduce")
