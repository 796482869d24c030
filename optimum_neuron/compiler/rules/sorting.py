"""Sorting, which the compiler documents as unsupported, and operators built on a sort; top-k is its substitute."""

from __future__ import annotations

from ...base.core import Ruling
from .base import OpCall, Target, accept, refuse, reject, rule

reject(
    "sorting",
    "argsort kthvalue median mode msort nanmedian randperm sort",
    code="NCC_EVRF001",
    reason="it needs a full sort, and the compiler has none",
    remedy="use torch.topk with a fixed k (k of the whole length sorts), or run it on the host with allow_host_ops",
)


@rule("topk", "topk")
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse top-k of int32 and int64."""
    if call.inputs[0].dtype in ("int32", "int64"):
        return refuse(call, "NCC_EVRF013", f"the input is {call.inputs[0].dtype}")
    return accept(call, "AwsNeuronTopK")
