"""Weights of 8 bits: configurations, conversions of tensors, and quantized models of torch layers.

A symmetric scale maps the largest absolute value of a tensor, or of each channel, to the largest number of the dtype.

    values, scale = quantize_fp8_per_channel(weight, torch.float8_e4m3fn, 0)
    weight = values.float() * scale
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ..errors import AssertedConfigError, ConfigError, invalid_choice

FP8_MAX = 240.0
"""Largest number of float8_e4m3 on a core; torch's float8_e4m3fn goes to 448."""
_LARGEST = {torch.float8_e4m3fn: FP8_MAX, torch.float8_e5m2: torch.finfo(torch.float8_e5m2).max}
_INT8 = (torch.int8, torch.qint8)
Config = dict[str, Any]


class QuantizationType(enum.Enum):
    """Which numbers share a scale."""

    PER_TENSOR_SYMMETRIC = "per_tensor_symmetric"
    PER_CHANNEL_SYMMETRIC = "per_channel_symmetric"
    PER_KEY_SYMMETRIC = "per_key_symmetric"
    BLOCKWISE_SYMMETRIC = "blockwise_symmetric"
    EXPERT_WISE_PER_CHANNEL_SYMMETRIC = "expert_wise_per_channel_symmetric"


class QuantizedDtype(enum.Enum):
    """The dtype of weights."""

    INT8 = torch.int8
    F8E4M3 = torch.float8_e4m3fn
    F8E5M2 = torch.float8_e5m2

    @classmethod
    def get_dtype(cls, dtype_string: str) -> torch.dtype:
        """Return torch's dtype of a name.

        Args:
            dtype_string: such as "int8" or "f8e4m3".
        """
        name = dtype_string.upper()
        if name not in cls.__members__:
            raise invalid_choice("dtype", dtype_string, [one.lower() for one in cls.__members__])
        return cls[name].value


class ActivationQuantizationType(enum.Enum):
    """How inputs of layers are quantized: not at all."""

    DYNAMIC = "dynamic"
    STATIC = "static"
    NONE = None


def get_default_custom_qconfig_dict() -> Config:
    """Return the configuration of one scale for each weight."""
    return {
        "quantization_type": QuantizationType.PER_TENSOR_SYMMETRIC,
        "quantized_dtype": QuantizedDtype.INT8,
        "activation_quantization_type": ActivationQuantizationType.NONE,
        "clamp_bound": float("inf"),
    }


def get_default_per_channel_custom_qconfig_dict() -> Config:
    """Return the configuration of one scale for each output of a layer."""
    kind = QuantizationType.PER_CHANNEL_SYMMETRIC
    return {**get_default_custom_qconfig_dict(), "quantization_type": kind, "quantization_per_channel_axis": None}


def quantize_per_tensor_symmetric(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of torch's qint8, with one scale.

    Args:
        tensor: floats.
    """
    return torch.quantize_per_tensor(tensor.float(), float(_int8_scale(tensor, None)), 0, torch.qint8)


def quantize_per_channel_symmetric(tensor: torch.Tensor, channel_axis: int) -> torch.Tensor:
    """Return a tensor of torch's qint8, with a scale for each channel.

    Args:
        tensor: floats.
        channel_axis: dimension of the channels.
    """
    scales = _int8_scale(tensor, channel_axis).flatten()
    return torch.quantize_per_channel(
        tensor.float(), scales, torch.zeros(len(scales), dtype=torch.int64), channel_axis, torch.qint8
    )


def _int8_scale(tensor: torch.Tensor, channel_axis: int | None) -> torch.Tensor:
    """The scale of a tensor, or those of its channels; torch divides the range of int8 in halves for the first."""
    if channel_axis is None:
        scale = tensor.float().abs().max().reshape(1) / 127.5
    else:
        scale = _largest(tensor, channel_axis, float("inf")) / 127.0
    return scale.clamp(min=torch.finfo(torch.float32).eps)


def quantize_fp8_per_tensor(tensor: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return floats of 8 bits, and their scale.

    Args:
        tensor: floats.
        dtype: torch.float8_e4m3fn or torch.float8_e5m2.
    """
    return _to_fp8(tensor, dtype, tensor.float().abs().max().reshape(1))


def quantize_fp8_per_channel(
    tensor: torch.Tensor, dtype: torch.dtype, channel_axis: int, clamp_bound: float = float("inf")
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return floats of 8 bits, and the scale of each channel.

    Args:
        tensor: floats.
        dtype: torch.float8_e4m3fn or torch.float8_e5m2.
        channel_axis: dimension of the channels.
        clamp_bound: larger absolute values become this one.
    """
    return _to_fp8(tensor.float().clamp(-clamp_bound, clamp_bound), dtype, _largest(tensor, channel_axis, clamp_bound))


def _largest(tensor: torch.Tensor, channel_axis: int, bound: float) -> torch.Tensor:
    """The largest absolute value of each channel, in the shape that tensors can be divided by."""
    others = [dim for dim in range(tensor.ndim) if dim != channel_axis % tensor.ndim]
    return tensor.float().abs().clamp(max=bound).amax(dim=others, keepdim=True)


def _to_fp8(tensor: torch.Tensor, dtype: torch.dtype, largest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if dtype not in _LARGEST:
        raise invalid_choice("dtype", str(dtype), [str(one) for one in _LARGEST])
    bound = _LARGEST[dtype]
    scale = (largest / bound).clamp(min=torch.finfo(torch.float32).eps)
    return (tensor.float() / scale).clamp(-bound, bound).to(dtype), scale


def extract_q_scale(q_tensor: torch.Tensor) -> torch.Tensor:
    """Return the scale of a tensor of torch's quantized dtypes, in a shape that its values can be multiplied with.

    Args:
        q_tensor: the tensor.
    """
    if not q_tensor.is_quantized:
        raise ConfigError(f"A tensor of {q_tensor.dtype} has no scale.", hint="Pass a tensor of torch.qint8.")
    if q_tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return torch.tensor([q_tensor.q_scale()])
    shape = [1] * q_tensor.ndim
    shape[q_tensor.q_per_channel_axis()] = -1
    return q_tensor.q_per_channel_scales().float().reshape(shape)


def direct_cast_dequantize(tensor: torch.Tensor, upcast_dtype: torch.dtype) -> torch.Tensor:
    """Return the numbers of a tensor in a larger dtype, without a scale.

    Args:
        tensor: numbers of 8 bits.
        upcast_dtype: the dtype.
    """
    return tensor.to(upcast_dtype)


def scale_dequantize(tensor: torch.Tensor, scale: torch.Tensor, upcast_dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor times its scale, multiplied in float32.

    Args:
        tensor: the tensor.
        scale: one number, or one for each of the last dimension.
        upcast_dtype: dtype of the result.
    """
    return (tensor.float() * scale).to(upcast_dtype)


class ScaleDtype(enum.Enum):
    """The dtype of scales of blocks."""

    F32 = torch.float32
    F8E8M0 = torch.uint8
    """The exponent of a power of 2, plus 127, as in the MX formats."""


def block_shapes(tensor_shape: Sequence[int], scale_shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shapes with a dimension more for each dimension in blocks, in which scales can be multiplied.

    Args:
        tensor_shape: shape of a tensor.
        scale_shape: number of its blocks in each dimension; dimensions that are left out are one block.

    Raises:
        AssertedConfigError: the tensor has no such blocks.
    """
    counts = [*scale_shape, *[1] * (len(tensor_shape) - len(scale_shape))]
    fits = len(counts) == len(tensor_shape)
    fits = fits and all(size % count == 0 for size, count in zip(tensor_shape, counts, strict=True))
    if not fits or list(tensor_shape) == list(scale_shape):
        message = f"A tensor of shape {list(tensor_shape)} has no blocks whose scales have shape {list(scale_shape)}."
        hint = "Pass one scale for each block; the number of blocks divides each dimension."
        raise AssertedConfigError(message, hint=hint, shape=list(tensor_shape), scale_shape=list(scale_shape))
    shape: list[int] = []
    scales: list[int] = []
    for size, count in zip(tensor_shape, counts, strict=True):
        is_whole = count in (1, size)
        shape += [size] if is_whole else [count, size // count]
        scales += [count] if is_whole else [count, 1]
    return tuple(shape), tuple(scales)


def blockwise_scale_dequantize(tensor: torch.Tensor, scale: torch.Tensor, upcast_dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor times the scales of its blocks, multiplied in float32.

    Args:
        tensor: numbers of 8 bits.
        scale: a scale for each block, of float32 or as exponents of `ScaleDtype.F8E8M0`.
        upcast_dtype: dtype of the result.
    """
    factors = torch.exp2(scale.float() - 127) if scale.dtype == ScaleDtype.F8E8M0.value else scale.float()
    shape, scale_shape = block_shapes(tensor.shape, scale.shape)
    return (tensor.float().reshape(shape) * factors.reshape(scale_shape)).reshape(tensor.shape).to(upcast_dtype)


class QuantizedLinear(nn.Module):
    """A linear layer of torch with weights of 8 bits, which is computed in float32.

    Args:
        linear: the layer.
        dtype: dtype of the weight.
        channel_axis: dimension whose channels have a scale each; None: one scale.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype, channel_axis: int | None) -> None:
        super().__init__()
        weight = linear.weight.detach()
        if dtype in _INT8:
            scale = _int8_scale(weight, channel_axis)
            values = (weight.float() * (1 / scale)).round().clamp(-128, 127).to(torch.int8)
        elif channel_axis is None:
            values, scale = quantize_fp8_per_tensor(weight, dtype)
        else:
            values, scale = quantize_fp8_per_channel(weight, dtype, channel_axis)
        self.weight = nn.Parameter(values, requires_grad=False)
        self.scale = nn.Parameter(scale, requires_grad=False)
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach(), requires_grad=False)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the outputs.

        Args:
            input: the inputs.
        """
        return F.linear(input, (self.weight.float() * self.scale).to(input.dtype), self.bias)


def quantize_pytorch_model_per_tensor_symmetric(
    float_model: nn.Module, inplace: bool = False, dtype: torch.dtype = torch.qint8
) -> nn.Module:
    """Return a model whose linear layers have weights of 8 bits, with one scale each.

    Args:
        float_model: the model.
        inplace: change it; otherwise a copy.
        dtype: torch.int8, torch.float8_e4m3fn, or torch.float8_e5m2.
    """
    return _quantized(float_model, inplace, dtype, None, ())


def quantize_pytorch_model_per_channel_symmetric(
    float_model: nn.Module,
    inplace: bool = False,
    dtype: torch.dtype = torch.qint8,
    modules_to_not_convert: Sequence[str] | None = None,
) -> nn.Module:
    """Return a model whose linear layers have weights of 8 bits, with a scale for each output.

    Args:
        float_model: the model.
        inplace: change it; otherwise a copy.
        dtype: torch.int8, torch.float8_e4m3fn, or torch.float8_e5m2.
        modules_to_not_convert: parts of names of modules that stay as they are.
    """
    return _quantized(float_model, inplace, dtype, 0, modules_to_not_convert or ())


def _quantized(
    model: nn.Module, inplace: bool, dtype: torch.dtype, channel_axis: int | None, skipped: Sequence[str]
) -> nn.Module:
    if dtype not in (*_INT8, *_LARGEST):
        raise invalid_choice("dtype", str(dtype), [str(one) for one in (torch.int8, *_LARGEST)])
    model = model if inplace else copy.deepcopy(model)
    for path, module in list(model.named_modules()):
        for name, child in list(module.named_children()):
            full = f"{path}.{name}".removeprefix(".")
            if type(child) is nn.Linear and not any(part in full for part in skipped):
                setattr(module, name, QuantizedLinear(child, dtype, channel_axis))
    return model


def convert_qint8_to_int8_state_dict(state_dict: dict[str, Any]) -> None:
    """Replace tensors of torch's quantized layers by `weight` of int8, `scale`, and `bias`, in place.

    Args:
        state_dict: of a model that `torch.ao.quantization` quantized, or of one of this module, which stays as it is.
    """
    end = "_packed_params._packed_params"
    for name in [name for name in state_dict if name.endswith(end)]:
        prefix = name.removesuffix(end)
        weight, bias = state_dict.pop(name)
        for rest in ("_packed_params.dtype", "zero_point", "scale"):
            state_dict.pop(prefix + rest, None)
        state_dict[f"{prefix}weight"], state_dict[f"{prefix}scale"] = weight.int_repr(), extract_q_scale(weight)
        if bias is not None:
            state_dict[f"{prefix}bias"] = bias.detach()
