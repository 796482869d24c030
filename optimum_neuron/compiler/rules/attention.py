"""Scaled dot-product attention: two matmuls around a softmax, which the compiler may fuse for transformers."""

from __future__ import annotations

from .base import table

table(
    "attention",
    {
        "DotGeneral Mul Add AwsNeuronSoftmax": (
            "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_fused_attention_overrideable "
            "scaled_dot_product_attention"
        ),
        "DotGeneral Mul Add AwsNeuronSoftmaxBackward": (
            "_scaled_dot_product_flash_attention_for_cpu_backward "
            "_scaled_dot_product_fused_attention_overrideable_backward"
        ),
    },
)
