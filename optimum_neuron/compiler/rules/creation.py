"""Tensors made from nothing: constants and ranges."""

from __future__ import annotations

from .base import table

table(
    "creation",
    {
        "aten.arange": "Iota",
        "aten.empty": "Constant",
        "aten.empty_like": "Constant",
        "aten.empty_permuted": "Constant",
        "aten.empty_strided": "Constant",
        "aten.eye": "Iota Compare",
        "aten.full": "Constant",
        "aten.full_like": "Constant",
        "aten.linspace": "Iota Mul Add",
        "aten.logspace": "Iota Mul Add Exp",
        "aten.new_empty": "Constant",
        "aten.new_full": "Constant",
        "aten.new_ones": "Constant",
        "aten.new_zeros": "Constant",
        "aten.ones": "Constant",
        "aten.ones_like": "Constant",
        "aten.scalar_tensor": "Constant",
        "aten.tril_indices": "Constant",
        "aten.triu_indices": "Constant",
        "aten.zeros": "Constant",
        "aten.zeros_like": "Constant",
    },
)
