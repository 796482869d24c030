"""Mixture-of-experts routing: torch's grouped matmul is known to the vendor's PyTorch; counting tokens for each expert
into bins, and looping over groups in Python, are not."""

from __future__ import annotations

from .base import reject, table

table("grouped-matmul", {"DotGeneral": "_grouped_mm", "DotGeneral Mul": "_scaled_grouped_mm"})

reject(
    "grouped-matmul-fallback",
    "transformers.grouped_mm_fallback",
    code="NCC_EUOC002",
    reason="it loops over groups of tokens whose sizes are known only after routing",
    remedy='load the model with experts_implementation="batched_mm", whose shapes are static',
)

reject(
    "histogram",
    "histc",
    code="NCC_EUOC002",
    reason="the compiler does not count values into bins",
    remedy="sum a one_hot of fixed width instead; for experts of transformers models, load with "
    'experts_implementation="batched_mm"',
)
