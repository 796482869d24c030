"""Scaled dot-product attention: two products around a softmax, which the compiler may fuse for transformers."""

from __future__ import annotations

from .base import table

_FORWARD, _BACKWARD = "DotGeneral Mul Add AwsNeuronSoftmax", "DotGeneral Mul Add AwsNeuronSoftmaxBackward"

table(
    "attention",
    {
        "aten._scaled_dot_product_flash_attention_for_cpu": _FORWARD,
        "aten._scaled_dot_product_flash_attention_for_cpu_backward": _BACKWARD,
        "aten._scaled_dot_product_fused_attention_overrideable": _FORWARD,
        "aten._scaled_dot_product_fused_attention_overrideable_backward": _BACKWARD,
        "aten.scaled_dot_product_attention": _FORWARD,
    },
)
