"""Sorting, which the compiler documents as unsupported; operators that torch builds on a sort are refused with it."""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, refuse, rule


@rule(
    "sorting",
    "aten.argsort",
    "aten.kthvalue",
    "aten.median",
    "aten.mode",
    "aten.msort",
    "aten.nanmedian",
    "aten.randperm",
    "aten.sort",
)
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse every operator that needs a full order."""
    return refuse(
        call,
        "sorting",
        "NCC_EVRF001",
        "it needs a full sort, and the compiler has none",
        remedy="use torch.topk with a fixed k (k of the whole length sorts), or run it on the host with allow_host_ops",
    )
