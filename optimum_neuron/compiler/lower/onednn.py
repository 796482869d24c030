"""Matrix products and convolutions of oneDNN, as operators that Inductor calls from C++ with weights as arguments.

torch sends float32 products to MKL, which runs narrow kernels on CPUs of other vendors: on an AMD EPYC with AVX-512
oneDNN was 2.0 times as fast. Weights may come as they lie in a file or packed for it (`prepare.py`); packed ones
gained another 8 to 30 %. Inductor has both calls, but only for weights that are constants of the compiled code;
the operators defined here are free of that condition.

    torch.ops.neuron_host.linear(x, weight_OI, bias_O)
    torch.ops.neuron_host.convolution(x, weight, bias, other, stride, padding, dilation, groups, relu, reuse_other)
"""

from __future__ import annotations

from typing import Any

import torch

from ..custom_operators import define


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    from ...upstream.torch import linear_pointwise

    return linear_pointwise(x, weight, bias, "none", [], "")


def _linear_shape(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _convolution(x: torch.Tensor, weight: torch.Tensor, bias: Any, other: Any, *options: Any) -> torch.Tensor:
    """`other` is added to the result, and then relu taken, in the kernel that computes it.

    `reuse_other` promises that `other` is not read afterwards, so compiled code writes the result into its memory.
    """
    from ...upstream.torch import convolution_pointwise

    stride, padding, dilation, groups, relu, _ = options
    x = x.contiguous(memory_format=torch.channels_last)
    if other is None:
        return convolution_pointwise(x, weight, bias, padding, stride, dilation, groups, *_then(relu, "none"))
    other = other.contiguous(memory_format=torch.channels_last)
    return convolution_pointwise.binary(
        x, other, weight, bias, padding, stride, dilation, groups, "add", 1.0, *_then(relu, None)
    )


def _then(relu: bool, nothing: str | None) -> tuple[str | None, list[Any], str]:
    """Arguments for what follows; torch's operators with an addend and without one spell nothing differently."""
    return ("relu" if relu else nothing, [], "")


def _convolution_shape(
    x: torch.Tensor, weight: torch.Tensor, bias: object, _: object, *options: object
) -> torch.Tensor:
    stride, padding, dilation, groups, *_ = options
    result = torch.ops.aten.convolution(x, weight, bias, stride, padding, dilation, False, [0, 0], groups)
    return result.contiguous(memory_format=torch.channels_last)


_RUNS_ANYWHERE = "CompositeExplicitAutograd"
LINEAR = define(
    "neuron_host::linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
    fake=_linear_shape,
    run=_linear,
    dispatch=_RUNS_ANYWHERE,
)
CONVOLUTION = define(
    "neuron_host::convolution(Tensor x, Tensor weight, Tensor? bias, Tensor? other, int[] stride, int[] padding, "
    "int[] dilation, int groups, bool relu, bool reuse_other) -> Tensor",
    fake=_convolution_shape,
    run=_convolution,
    dispatch=_RUNS_ANYWHERE,
)


def register_lowerings() -> None:
    """Tell Inductor how to call them from C++."""
    from ...upstream.inductor import ExternKernel, FixedLayout, TensorBox, lowering, mkldnn_ir

    if LINEAR in lowering.lowerings:
        return

    @lowering.register_lowering(LINEAR, type_promotion_kind=None)
    def linear(x: Any, weight: Any, bias: Any) -> Any:
        # Inductor's own node would copy a weight that lies in columns, as it does for the gradient of an input.
        *axes, num_contracted = x.get_size()
        num_rows = weight.get_size()[0]
        rows = ExternKernel.require_contiguous(ExternKernel.realize_input(lowering.view(x, [-1, num_contracted])))
        weight = ExternKernel.realize_input(weight)
        if weight.get_stride()[0] != 1 or weight.get_stride()[1] < num_rows:
            weight = ExternKernel.require_contiguous(weight)
        inputs, constants = [rows, weight], ("none", [-1], "")
        if bias is not None:
            inputs.append(ExternKernel.require_contiguous(ExternKernel.realize_input(bias)))
        layout = FixedLayout(x.get_device(), x.get_dtype(), [rows.get_size()[0], num_rows])
        # The operator takes None without a bias; an existing bias is among the inputs.
        node = mkldnn_ir.LinearUnary(layout, inputs, (None, *constants) if bias is None else constants)
        return lowering.view(TensorBox.create(node), [*axes, num_rows])

    @lowering.register_lowering(CONVOLUTION, type_promotion_kind=None)
    def convolution(x: Any, weight: Any, bias: Any, other: Any, *options: Any) -> Any:
        stride, padding, dilation, groups, relu, reuse_other = options
        where = (padding, stride, dilation, groups)
        if other is None:
            return TensorBox.create(mkldnn_ir.ConvolutionUnary.create(x, weight, bias, *where, *_then(relu, "none")))
        x.realize()
        other.realize()
        # A convolution cannot write over its own input.
        in_place = reuse_other and x.get_name() != other.get_name()
        kernel = mkldnn_ir.ConvolutionBinaryInplace if in_place else mkldnn_ir.ConvolutionBinary
        return TensorBox.create(kernel.create(x, other, weight, bias, *where, "add", 1.0, *_then(relu, None)))
