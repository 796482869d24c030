"""Scaled dot-product attention: two products around a softmax, which the compiler may fuse for transformers."""

from __future__ import annotations

from .base import table

table("attention", {"aten.scaled_dot_product_attention": "DotGeneral Mul Add AwsNeuronSoftmax"})
