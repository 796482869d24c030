"""Softmax and normalisation layers."""

from __future__ import annotations

from .base import table

table(
    "normalization",
    {
        "aten._fused_rms_norm": "AwsNeuronRmsNorm",
        "aten._log_softmax": "Reduce Sub Exp Log",
        "aten._log_softmax_backward_data": "Reduce Exp Mul Sub",
        "aten._native_batch_norm_legit": "Batchnorm",
        "aten._native_batch_norm_legit_no_training": "Batchnorminference",
        "aten._softmax": "AwsNeuronSoftmax",
        "aten._softmax_backward_data": "AwsNeuronSoftmaxBackward",
        "aten.batch_norm": "Batchnorm",
        "aten.group_norm": "Reshape Reduce Sub Rsqrt Mul Add",
        "aten.instance_norm": "Reduce Sub Rsqrt Mul Add",
        "aten.layer_norm": "Reduce Sub Rsqrt Mul Add",
        "aten.log_softmax": "Reduce Sub Exp Log",
        "aten.native_batch_norm": "Batchnorm",
        "aten.native_batch_norm_backward": "Batchnormgrad",
        "aten.native_group_norm": "Reshape Reduce Sub Rsqrt Mul Add",
        "aten.native_layer_norm": "Reduce Sub Rsqrt Mul Add",
        "aten.rms_norm": "AwsNeuronRmsNorm",
        "aten.softmax": "AwsNeuronSoftmax",
    },
)
