"""Layers that ranks divide, with weights of 8 bits and their scales, and `convert`, which puts them into a model.

model = convert(model, get_default_per_channel_custom_qconfig_dict())
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from ..errors import ConfigError, NotSupportedError, invalid_choice
from . import mappings
from .attributes import set_tensor_model_parallel_attributes
from .layers import BaseParallelLinear, ColumnParallelLinear, RowParallelLinear
from .quantization import (
    ActivationQuantizationType,
    Config,
    QuantizationType,
    QuantizedDtype,
    get_default_custom_qconfig_dict,
    scale_dequantize,
)

_DIVIDED = (QuantizationType.PER_TENSOR_SYMMETRIC, QuantizationType.PER_CHANNEL_SYMMETRIC)


def _member(kind: Any, value: Any, option: str) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        raise invalid_choice(option, str(value), [str(one.value) for one in kind]) from error


class _Quantized(BaseParallelLinear):
    """What both layers have beside those of float weights: a scale, and no gradients."""

    add_bias: bool

    def _quantize(self, kind: Any, dtype: Any, axis: int | None, activations: Any) -> None:
        """Give the weight its dtype, and make the scale.

        Args:
            kind: which numbers share a scale.
            dtype: dtype of the weight.
            axis: dimension of channels.
            activations: how inputs are quantized.
        """
        self.quantization_type = _member(QuantizationType, kind, "quantization_type")
        self.quantized_dtype = _member(QuantizedDtype, dtype, "quantized_dtype")
        inputs = _member(ActivationQuantizationType, activations, "activation_quantization_type")
        if self.quantization_type not in _DIVIDED or inputs is not ActivationQuantizationType.NONE:
            message = f"Layers have no {self.quantization_type.value} weights with {inputs.value} inputs."
            hint = "Use per_tensor_symmetric or per_channel_symmetric, and leave activations as they are."
            raise NotSupportedError(message, hint=hint, quantization_type=self.quantization_type.value)
        if axis not in (None, 0):
            message = f"quantization_per_channel_axis is {axis}."
            raise NotSupportedError(message, hint="Pass 0: each output has a scale.", axis=axis)
        if self.keep_master_weight:
            raise NotSupportedError("Quantized layers keep no master weight.", hint="Leave keep_master_weight out.")
        made, attributes = self.weight, dict(vars(self.weight))
        self.weight = nn.Parameter(
            torch.zeros(made.shape, dtype=self.quantized_dtype.value, device=made.device), requires_grad=False
        )
        vars(self.weight).update(attributes)
        per_channel = self.quantization_type is QuantizationType.PER_CHANNEL_SYMMETRIC
        shape = (made.shape[0], 1) if per_channel else (1,)
        self.scale = nn.Parameter(torch.ones(shape, device=made.device), requires_grad=False)
        is_divided = per_channel and self.partition_dim == 0
        if is_divided:
            set_tensor_model_parallel_attributes(
                self.scale, True, 0, self.stride, self.tp_size, rank_ordering=self.rank_ordering
            )
        if self.bias is not None:
            self.bias.requires_grad_(False)

    def _product(self, input: torch.Tensor) -> torch.Tensor:
        """The inputs times the dequantized weight."""
        output = F.linear(input, self.weight.to(input.dtype))
        return scale_dequantize(output, self.scale.T if self.scale.ndim > 1 else self.scale, input.dtype)

    @classmethod
    def options_of(cls, mod: BaseParallelLinear, q_config: Config) -> dict[str, Any]:
        """Return the arguments that make the quantized layer of a float layer.

        Args:
            mod: the float layer.
            q_config: the configuration.
        """
        return {
            "bias": mod.bias is not None,
            "dtype": mod.dtype,
            "device": mod.weight.device,
            "stride": mod.stride,
            "sequence_parallel_enabled": mod.sequence_parallel_enabled,
            "sequence_dimension": mod.sequence_dimension,
            "tensor_model_parallel_group": mod.tensor_model_parallel_group,
            "rank_ordering": mod.rank_ordering,
            "quantization_type": q_config["quantization_type"],
            "quantized_dtype": q_config["quantized_dtype"],
            "quantization_per_channel_axis": q_config.get("quantization_per_channel_axis"),
            "activation_quantization_type": q_config.get("activation_quantization_type"),
        }


class QuantizedColumnParallel(ColumnParallelLinear, _Quantized):
    """`ColumnParallelLinear` with a weight of 8 bits, for inference.

    Args:
        input_size: number of inputs.
        output_size: number of outputs, of all ranks.
        bias: add a bias.
        quantization_type: "per_tensor_symmetric" or "per_channel_symmetric".
        gather_output: return the outputs of all ranks.
        dtype: dtype of the bias.
        quantized_dtype: dtype of the weight.
        device: device of the weight.
        stride: pieces of a rank.
        sequence_parallel_enabled: the input is this rank's part of the sequence.
        sequence_dimension: dimension of the sequence.
        keep_master_weight: not supported.
        quantization_per_channel_axis: None or 0.
        tensor_model_parallel_group: the ranks.
        pad: add rows until ranks can divide them.
        activation_quantization_type: None.
        rank_ordering: which part each rank has.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        bias: bool = True,
        quantization_type: QuantizationType | str = QuantizationType.PER_TENSOR_SYMMETRIC,
        gather_output: bool = True,
        dtype: torch.dtype = torch.float32,
        quantized_dtype: QuantizedDtype | torch.dtype = QuantizedDtype.INT8,
        device: torch.device | str | None = None,
        stride: int = 1,
        sequence_parallel_enabled: bool = False,
        sequence_dimension: int | None = None,
        keep_master_weight: bool = False,
        quantization_per_channel_axis: int | None = None,
        tensor_model_parallel_group: dist.ProcessGroup | None = None,
        pad: bool = False,
        activation_quantization_type: ActivationQuantizationType | str | None = None,
        rank_ordering: list[int] | None = None,
    ) -> None:
        super().__init__(
            input_size,
            output_size,
            bias=bias,
            gather_output=gather_output,
            dtype=dtype,
            device=device,
            stride=stride,
            init_method=nn.init.zeros_,
            sequence_parallel_enabled=sequence_parallel_enabled,
            sequence_dimension=sequence_dimension,
            keep_master_weight=keep_master_weight,
            pad=pad,
            tensor_model_parallel_group=tensor_model_parallel_group,
            rank_ordering=rank_ordering,
        )
        axis = quantization_per_channel_axis
        self._quantize(quantization_type, quantized_dtype, axis, activation_quantization_type)

    def forward(self, input: torch.Tensor, slice_indices: torch.Tensor | None = None) -> torch.Tensor:
        """Return the outputs.

        Args:
            input: inputs that ranks have alike, or parts of a sequence.
            slice_indices: None.
        """
        if slice_indices is not None:
            raise NotSupportedError("Quantized layers use all rows.", hint="Leave slice_indices out.")
        group = self.tensor_parallel_group
        if self.sequence_parallel_enabled:
            input = mappings.gather_from_sequence_parallel_region(input, self.sequence_dimension, process_group=group)
        output = self._product(input)
        if self.gather_output:
            output = mappings.gather_from_tensor_model_parallel_region(output, group)
            if self.pad_size:
                output = output[..., : self.output_size - self.pad_size]
        return output if self.bias is None else output + self.bias[: output.shape[-1]]

    @classmethod
    def from_float(cls, mod: ColumnParallelLinear, q_config: Config | None = None) -> QuantizedColumnParallel:
        """Return the quantized layer of a float layer, without its values.

        Args:
            mod: the float layer.
            q_config: the configuration; None: int8 with one scale.
        """
        options = cls.options_of(mod, q_config or get_default_custom_qconfig_dict())
        size = mod.output_size - mod.pad_size
        return cls(mod.weight.shape[1], size, gather_output=mod.gather_output, pad=mod.pad, **options)


class QuantizedRowParallel(RowParallelLinear, _Quantized):
    """`RowParallelLinear` with a weight of 8 bits, for inference.

    Args:
        input_size: number of inputs, of all ranks.
        output_size: number of outputs.
        bias: add a bias.
        quantization_type: "per_tensor_symmetric" or "per_channel_symmetric".
        input_is_parallel: the input is this rank's part.
        dtype: dtype of the bias.
        quantized_dtype: dtype of the weight.
        device: device of the weight.
        stride: pieces of a rank.
        sequence_parallel_enabled: return this rank's part of the sequence.
        sequence_dimension: dimension of the sequence.
        keep_master_weight: not supported.
        quantization_per_channel_axis: None or 0.
        tensor_model_parallel_group: the ranks.
        pad: add columns until ranks can divide them.
        reduce_output: sum over ranks.
        reduce_dtype: dtype of that sum.
        activation_quantization_type: None.
        rank_ordering: which part each rank has.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        bias: bool = True,
        quantization_type: QuantizationType | str = QuantizationType.PER_TENSOR_SYMMETRIC,
        input_is_parallel: bool = False,
        dtype: torch.dtype = torch.float32,
        quantized_dtype: QuantizedDtype | torch.dtype = QuantizedDtype.INT8,
        device: torch.device | str | None = None,
        stride: int = 1,
        sequence_parallel_enabled: bool = False,
        sequence_dimension: int | None = None,
        keep_master_weight: bool = False,
        quantization_per_channel_axis: int | None = None,
        tensor_model_parallel_group: dist.ProcessGroup | None = None,
        pad: bool = False,
        reduce_output: bool = True,
        reduce_dtype: torch.dtype = torch.float32,
        activation_quantization_type: ActivationQuantizationType | str | None = None,
        rank_ordering: list[int] | None = None,
    ) -> None:
        super().__init__(
            input_size,
            output_size,
            bias=bias,
            input_is_parallel=input_is_parallel,
            dtype=dtype,
            device=device,
            stride=stride,
            init_method=nn.init.zeros_,
            sequence_parallel_enabled=sequence_parallel_enabled,
            sequence_dimension=sequence_dimension,
            keep_master_weight=keep_master_weight,
            pad=pad,
            reduce_output=reduce_output,
            reduce_dtype=reduce_dtype,
            tensor_model_parallel_group=tensor_model_parallel_group,
            rank_ordering=rank_ordering,
        )
        axis = quantization_per_channel_axis
        self._quantize(quantization_type, quantized_dtype, axis, activation_quantization_type)

    def forward(self, input_: torch.Tensor, slice_indices: torch.Tensor | None = None) -> torch.Tensor:
        """Return the outputs.

        Args:
            input_: this rank's part of the inputs, or inputs that ranks have alike.
            slice_indices: None.
        """
        if slice_indices is not None:
            raise NotSupportedError("Quantized layers use all columns.", hint="Leave slice_indices out.")
        if not self.input_is_parallel:
            input_ = F.pad(input_, (0, self.pad_size)) if self.pad_size else input_
            input_ = mappings.scatter_to_tensor_model_parallel_region(input_, self.tensor_parallel_group)
        output = self._product(input_)
        if self.reduce_output and self.tp_size > 1:
            output = self._summed(output)
        return output if self.bias is None else output + self.bias

    @classmethod
    def from_float(cls, mod: RowParallelLinear, q_config: Config | None = None) -> QuantizedRowParallel:
        """Return the quantized layer of a float layer, without its values.

        Args:
            mod: the float layer.
            q_config: the configuration; None: int8 with one scale.
        """
        options = cls.options_of(mod, q_config or get_default_custom_qconfig_dict())
        sizes = (mod.input_size - mod.pad_size, mod.weight.shape[0])
        options |= {"reduce_output": mod.reduce_output, "reduce_dtype": mod.reduce_dtype}
        return cls(*sizes, input_is_parallel=mod.input_is_parallel, pad=mod.pad, **options)


Mappings = Mapping[type[nn.Module], Any]


def get_default_quant_module_mappings() -> dict[type[nn.Module], Any]:
    """Return the quantized class of each class of layers."""
    return {ColumnParallelLinear: QuantizedColumnParallel, RowParallelLinear: QuantizedRowParallel}


def convert(
    module: nn.Module,
    q_config: Config | None = None,
    inplace: bool = False,
    mapping: Mappings | None = None,
    include: str | Sequence[str] | None = None,
    modules_to_not_convert: Sequence[str] | None = None,
) -> nn.Module:
    """Replace layers by quantized ones, which get their values from a checkpoint.

    Args:
        module: the model.
        q_config: the configuration; None: int8 with one scale.
        inplace: change the model; otherwise a copy.
        mapping: quantized class of each class of layers.
        include: patterns of names of modules to convert, with what is in them; None: all.
        modules_to_not_convert: parts of names of modules that stay as they are.

    Raises:
        ConfigError: both lists are given, or a pattern fits no module.
    """
    if include is not None and modules_to_not_convert is not None:
        message = "include and modules_to_not_convert are both given."
        raise ConfigError(message, hint="Pass one of them.", options=["include", "modules_to_not_convert"])
    model = module if inplace else _copied(module)
    classes = get_default_quant_module_mappings() if mapping is None else mapping
    patterns = [include] if isinstance(include, str) else include
    chosen = _chosen(model, patterns, modules_to_not_convert or ())
    for path, parent in list(model.named_modules()):
        for name, child in list(parent.named_children()):
            if type(child) in classes and chosen(f"{path}.{name}".removeprefix(".")):
                setattr(parent, name, classes[type(child)].from_float(child, q_config))
    return model


def _copied(module: nn.Module) -> nn.Module:
    """A copy with the same groups of ranks, whose parameters say how ranks divide them."""
    groups = {id(v): v for one in module.modules() for v in vars(one).values() if isinstance(v, dist.ProcessGroup)}
    copied = copy.deepcopy(module, dict(groups))
    for old, new in zip(module.parameters(), copied.parameters(), strict=True):
        vars(new).update(vars(old))
    return copied


def _chosen(model: nn.Module, patterns: Sequence[str] | None, skipped: Sequence[str]) -> Callable[[str], bool]:
    """Whether the module of a name is converted."""
    if patterns is None:
        return lambda name: not any(part in name for part in skipped)
    names = [name for name, _ in model.named_modules()]
    if missing := [one for one in patterns if not any(fnmatch(name, one) for name in names)]:
        message = f"No module has a name like {', '.join(missing)}."
        raise ConfigError(message, hint="Name modules as named_modules() does, with * for any part.", patterns=missing)
    found = [name for name in names if any(fnmatch(name, one) for one in patterns)]
    return lambda name: any(name == one or name.startswith(f"{one}.") for one in found)
