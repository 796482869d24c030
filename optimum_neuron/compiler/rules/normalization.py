"""Softmax and normalisation layers."""

from __future__ import annotations

from .base import table

table(
    "normalization",
    {
        "AwsNeuronRmsNorm": "_fused_rms_norm rms_norm",
        "Reduce Sub Exp Log": "_log_softmax log_softmax",
        "Reduce Exp Mul Sub": "_log_softmax_backward_data",
        "Batchnorm": "_native_batch_norm_legit batch_norm native_batch_norm",
        "Batchnorminference": "_native_batch_norm_legit_no_training",
        "AwsNeuronSoftmax": "_softmax softmax",
        "AwsNeuronSoftmaxBackward": "_softmax_backward_data",
        "Reshape Reduce Sub Rsqrt Mul Add": "group_norm native_group_norm",
        "Reduce Sub Rsqrt Mul Add": "instance_norm layer_norm native_layer_norm",
        "Batchnormgrad": "native_batch_norm_backward",
    },
)
