"""Mixture-of-experts routing: torch's grouped matmul is known to the vendor's PyTorch; counting tokens for each expert
into bins, and looping over groups in Python, are not."""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, refuse, rule, table

table("grouped-matmul", {"aten._grouped_mm": "DotGeneral", "aten._scaled_grouped_mm": "DotGeneral Mul"})


@rule("grouped-matmul-fallback", "transformers.grouped_mm_fallback")
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse the loop over groups whose sizes depend on the routing."""
    return refuse(
        call,
        "grouped-matmul-fallback",
        "NCC_EUOC002",
        "it loops over groups of tokens whose sizes are known only after routing",
        remedy='load the model with experts_implementation="batched_mm", whose shapes are static',
    )


@rule("histogram", "aten.histc")
def judge_histogram(call: OpCall, target: Target) -> Ruling:
    """Refuse counting into bins."""
    return refuse(
        call,
        "histogram",
        "NCC_EUOC002",
        "the compiler does not count values into bins",
        remedy="sum a one_hot of fixed width instead; for experts of transformers models, load with "
        'experts_implementation="batched_mm"',
    )
