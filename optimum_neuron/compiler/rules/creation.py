"""Tensors made from nothing: constants and ranges."""

from __future__ import annotations

from .base import table

table(
    "creation",
    {
        "Iota": "arange",
        "Constant": (
            "empty empty_like empty_permuted empty_strided full full_like new_empty new_full new_ones new_zeros ones "
            "ones_like scalar_tensor tril_indices triu_indices zeros zeros_like"
        ),
        "Iota Compare": "eye",
        "Iota Mul Add": "linspace",
        "Iota Mul Add Exp": "logspace",
    },
)
