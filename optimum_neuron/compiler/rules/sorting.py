"""Sorting, which the compiler documents as unsupported; operators that torch builds on a sort are refused with it."""

from __future__ import annotations

from .base import reject

reject(
    "sorting",
    "argsort kthvalue median mode msort nanmedian randperm sort",
    code="NCC_EVRF001",
    reason="it needs a full sort, and the compiler has none",
    remedy="use torch.topk with a fixed k (k of the whole length sorts), or run it on the host with allow_host_ops",
)
