"""Reductions, running sums, softmax and normalization layers."""

from __future__ import annotations

from ...base.core import Ruling
from .base import OpCall, Target, accept, rule, table

table(
    "reduction",
    {
        "Sub Abs Pow Reduce": "_cdist_forward _pdist_forward cdist",
        "Sub Sign Abs Pow Div Mul Reduce": "_cdist_backward _pdist_backward",
        "Mul Reduce": "_trilinear",
        "Reduce": "all amax amin any prod sum",
        "AwsNeuronArgMax": "argmax",
        "AwsNeuronArgMin": "argmin",
        "Compare Reduce": "bucketize searchsorted",
        "ReduceWindow": "cumprod cumsum",
        "Reduce Div": "mean",
        "Reduce Sub Mul Div": "var var_mean",
    },
)


@rule("extremum", "max min")
def judge(call: OpCall, target: Target) -> Ruling:
    """One name for three operators: of a whole tensor, along a dimension with positions, and of two tensors."""
    which = "Max" if call.name == "aten.max" else "Min"
    if len(call.outputs) == 2:
        return accept(call, f"Reduce AwsNeuronArg{which}")
    return accept(call, which if len(call.inputs) == 2 else "Reduce")


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
        "Mul Reduce Div Sub": "_weight_norm_interface_backward",
    },
)
