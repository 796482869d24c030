"""Sorting, which the compiler documents as unsupported, and operators built on a sort; top-k is its substitute."""

from __future__ import annotations

from ...base.core import Ruling
from .base import OpCall, Target, accept, refuse, reject, rule
from .codes import ON_HOST

reject(
    "sorting",
    "argsort kthvalue median mode msort nanmedian randperm sort",
    code="NCC_EVRF001",
    reason="it needs a full sort, and the compiler has none",
    remedy=f"use torch.topk with a fixed k (k of the whole length sorts), or run it {ON_HOST}",
)


@rule("topk", "topk")
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse top-k of int32 and int64."""
    if call.inputs[0].dtype in ("int32", "int64"):
        return refuse(call, "NCC_EVRF013", f"the input is {call.inputs[0].dtype}")
    return accept(call, "AwsNeuronTopK")
