"""Names that the vendor publishes: instructions the compiler knows, custom calls, ATen operators.

A rule may only map an operator to names in this file, so that every acceptance rests on a published list. "Neuron docs"
is the AWS Neuron documentation as of SDK 2.32 (August 2026). It holds data and does not depend on graphs or torch.

    >>> from optimum_neuron.compiler.rules.published import instruction_source
    >>> instruction_source("Add")
    'Neuron docs, neuronx-cc XLA operator list'
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


XLA_OPERATOR_LIST = _names(
    """
    Abs Add Allgather Allreduce Atan2 Batchnorm Batchnormgrad Batchnorminference Broadcast BroadcastInDim Ceil Clamp
    Compare Concatenate Constant ConvertElementType Cos Div Dot DotGeneral DynamicUpdateSlice Exp Floor Gather
    GetTupleElement Iota Log LogicalAnd LogicalNot Max Min Mul Neg Pad Pow Reduce Reshape RngBitGenerator RngUniform
    Rsqrt Scatter Select ShiftRightLogical Sign Sin Slice Sqrt Sub Tanh Transpose Tuple
    """
)
"""Instructions of the published list (compiler documentation, operators of framework XLA); comparisons are folded
into Compare."""

CUSTOM_CALLS = _names(
    """
    AwsNeuronErf AwsNeuronGelu AwsNeuronGeluApprxTanh AwsNeuronGeluBackward AwsNeuronSilu AwsNeuronSiluBackward
    AwsNeuronRmsNorm AwsNeuronSoftmax AwsNeuronSoftmaxBackward AwsNeuronCollectiveMatmul AwsNeuronIntMatmult
    AwsNeuronArgMax AwsNeuronArgMin AwsNeuronTopK AwsNeuronDropoutMaskV1 ResizeNearest ResizeBilinear ResizeNearestGrad
    """
)
"""Custom-call targets that the page of NCC_EHCA005 calls recognized."""

RESTRICTED = {"Convolution": "NCC_EVRF010", "ReduceWindow": "NCC_EVRF018", "ShiftRightArithmetic": "NCC_EVRF022"}
"""Instructions on no list, known from the error page that says when they are refused: otherwise they are accepted."""

TORCH_NEURONX_ATEN = _names(
    """
    _s_where _softmax _softmax_backward_data _unsafe_view add addcdiv_ addcmul addmm bernoulli_ bmm constant_pad_nd div
    embedding embedding_dense_backward empty expand fill_ index_select _log_softmax _log_softmax_backward_data lt mm mul
    native_batch_norm native_batch_norm_backward neg permute relu rsub select slice sqrt sum t tanh tanh_backward
    threshold_backward transpose unsqueeze view zero_
    """
)
"""ATen operators that torch-neuronx lists as supported (_s_where is today's where). The list is a sample: every name
on it must be accepted, and a name that is missing from it says nothing."""


def instruction_source(name: str) -> str:
    """Return the document that says that the compiler knows an instruction."""
    if name in XLA_OPERATOR_LIST:
        return "Neuron docs, neuronx-cc XLA operator list"
    if name in CUSTOM_CALLS:
        return "Neuron docs, neuronx-cc error code NCC_EHCA005, recognized custom calls"
    return f"Neuron docs, neuronx-cc error code {RESTRICTED[name]}"
