"""Top-k, which the core computes on floating point only."""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, accept, refuse, rule


@rule("topk", "topk")
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse top-k of int32 and int64."""
    if call.inputs[0].dtype in ("int32", "int64"):
        return refuse(call, "topk", "NCC_EVRF013", f"the input is {call.inputs[0].dtype}")
    return accept(call, "topk", "AwsNeuronTopK")
