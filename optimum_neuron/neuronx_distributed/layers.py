"""Layers whose weights ranks divide: `ColumnParallelLinear`, `RowParallelLinear`, `ParallelEmbedding`.

A weight is drawn whole, on the CPU, and each rank keeps its part. So ranks with one seed have the weights that one
process has, whatever the degree of tensor parallelism.

    layer = ColumnParallelLinear(1024, 4096, gather_output=False)
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from ..errors import ConfigError
from . import mappings
from .arithmetic import divide, get_padding_length
from .parameters import Initializer, default_init, draw, parallel_parameter


class BaseParallelLinear(nn.Module):
    """A linear layer whose weight ranks divide in one dimension."""

    partition_dim: int
    sequence_dimension: int

    def _keep(self, options: dict[str, Any]) -> None:
        """Keep the arguments, and find the ranks."""
        for name, value in options.items():
            setattr(self, name, value)
        self.tensor_parallel_group = mappings.group_or_tensor(options["tensor_model_parallel_group"])
        self.tp_size = mappings.size_of(self.tensor_parallel_group)
        self.sequence_dimension = options["sequence_dimension"] or 0
        self.pad_size = 0

    def _require_no_padding_in_training(self) -> None:
        if self.pad and self.training:
            raise ConfigError("Layers with pad=True do not train.", hint="Call model.eval(), or pass pad=False.")

    def _make_weight(self, rows: int, columns: int) -> None:
        weight = parallel_parameter(
            (rows, columns),
            self.partition_dim,
            self.init_method or default_init,
            group=self.tensor_parallel_group,
            stride=self.stride,
            dtype=self.dtype,
            device=self.device,
            rank_ordering=self.rank_ordering,
            keeps=self if self.keep_master_weight else None,
        )
        self.weight = weight

    def init_weight_cpu(self) -> None:
        """Draw the weight again, as when the layer was made."""
        whole = draw(self.weight, self.init_method or default_init, mappings.rank_in(self.tensor_parallel_group))
        if self.keep_master_weight:
            self.master_weight = whole

    def _make_bias(self, length: int, columns: int, *, is_divided: bool) -> None:
        if not self.add_bias:
            self.register_parameter("bias", None)
            return
        bound = 1 / math.sqrt(columns) if columns > 0 else 0.0
        self.bias = parallel_parameter(
            (length,),
            0 if is_divided else None,
            lambda whole: nn.init.uniform_(whole, -bound, bound),
            group=self.tensor_parallel_group,
            stride=self.stride,
            dtype=self.dtype,
            device=self.device,
            rank_ordering=self.rank_ordering,
        )

    def extra_repr(self) -> str:
        """Return sizes and ranks, for `print`."""
        rows, columns = self.weight.shape
        return f"in_features={columns}, out_features={rows}, bias={self.bias is not None}, ranks={self.tp_size}"


class ColumnParallelLinear(BaseParallelLinear):
    """A linear layer whose ranks each compute a part of the outputs.

    Args:
        input_size: number of inputs.
        output_size: number of outputs, of all ranks.
        bias: add a bias.
        gather_output: return the outputs of all ranks; otherwise this rank's.
        dtype: dtype of the weight.
        device: device of the weight.
        stride: pieces of a rank, for a weight with several matrices in its rows.
        init_method: draws the whole weight, in place.
        sequence_parallel_enabled: the input is this rank's part of the sequence.
        sequence_dimension: dimension of the sequence; None: 0.
        keep_master_weight: keep the whole weight in `master_weight`.
        skip_bias_add: return output and bias.
        pad: add rows until ranks can divide them, for inference.
        pad_alignment_size_per_rank: the rows of a rank are a multiple of it.
        keep_padded_output: return outputs of added rows too.
        tensor_model_parallel_group: the ranks; None: those of tensor parallelism.
        reduce_dtype: dtype in which gradients of inputs are summed.
        rank_ordering: which part each rank has.
    """

    partition_dim = 0

    def __init__(
        self,
        input_size: int,
        output_size: int,
        bias: bool = True,
        gather_output: bool = True,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        stride: int = 1,
        init_method: Initializer | None = None,
        sequence_parallel_enabled: bool = False,
        sequence_dimension: int | None = None,
        keep_master_weight: bool = False,
        skip_bias_add: bool = False,
        pad: bool = False,
        pad_alignment_size_per_rank: int = 1,
        keep_padded_output: bool = False,
        tensor_model_parallel_group: dist.ProcessGroup | None = None,
        reduce_dtype: torch.dtype = torch.float32,
        rank_ordering: list[int] | None = None,
    ) -> None:
        options = {name: value for name, value in locals().items() if name not in ("self", "__class__", "bias")}
        super().__init__()
        self.add_bias = bias
        self._keep(options)
        if gather_output and sequence_parallel_enabled:
            message = "A column-parallel layer cannot gather outputs of parts of a sequence."
            raise ConfigError(message, hint="Pass gather_output=False.")
        if pad:
            self.pad_size = get_padding_length(output_size, pad_alignment_size_per_rank * self.tp_size)
        self.output_size = output_size + self.pad_size
        self.output_size_per_partition = divide(self.output_size, self.tp_size)
        self._make_weight(self.output_size, input_size)
        self._make_bias(self.output_size, input_size, is_divided=not gather_output)

    def forward(self, input: torch.Tensor, slice_indices: torch.Tensor | None = None) -> Any:
        """Return the outputs, or outputs and bias.

        Args:
            input: inputs that ranks have alike, or parts of a sequence.
            slice_indices: rows of the weight to use; None: all.
        """
        self._require_no_padding_in_training()
        group, dtype = self.tensor_parallel_group, input.dtype
        weight = self.weight if slice_indices is None else self.weight[slice_indices, :]
        if self.sequence_parallel_enabled:
            input = mappings.gather_from_sequence_parallel_region(input, self.sequence_dimension, process_group=group)
        elif self.tp_size > 1:
            input = summed_gradient(input, group, self.reduce_dtype or dtype)
        output = F.linear(input, weight)
        if self.gather_output:
            output = mappings.gather_from_tensor_model_parallel_region(output, group)
            if self.pad_size and not self.keep_padded_output:
                output = output[..., : self.output_size - self.pad_size]
        if self.skip_bias_add:
            return output, self.bias
        return output if self.bias is None else output + self.bias[: output.shape[-1]]

    def preshard_hook(self, model_state_dict: dict[str, torch.Tensor], prefix: str) -> None:
        """Pad a tensor of a whole checkpoint as this layer is padded.

        Args:
            model_state_dict: the tensors, by name.
            prefix: name of this layer's weight or bias.
        """
        if self.pad_size:
            whole = model_state_dict[prefix]
            sides = [0, 0] * (whole.ndim - 1) + [0, self.pad_size]
            fill = 0.0 if prefix.endswith("weight") else torch.finfo(whole.dtype).min
            model_state_dict[prefix] = F.pad(whole, sides, value=fill)


def summed_gradient(value: torch.Tensor, group: mappings.Group, dtype: torch.dtype) -> torch.Tensor:
    """The tensor, whose gradient is summed over ranks in a dtype."""
    result: torch.Tensor = mappings.Mapping.apply(
        value, mappings.same, lambda gradient: mappings.reduce(gradient.to(dtype), group).to(gradient.dtype)
    )
    return result


class RowParallelLinear(BaseParallelLinear):
    """A linear layer whose ranks each have a part of the inputs.

    Args:
        input_size: number of inputs, of all ranks.
        output_size: number of outputs.
        bias: add a bias, after the sum over ranks.
        input_is_parallel: the input is this rank's part.
        dtype: dtype of the weight.
        device: device of the weight.
        stride: pieces of a rank.
        init_method: draws the whole weight, in place.
        sequence_parallel_enabled: return this rank's part of the sequence.
        sequence_dimension: dimension of the sequence; None: 0.
        keep_master_weight: keep the whole weight in `master_weight`.
        skip_bias_add: return output and bias.
        pad: add columns until ranks can divide them, for inference.
        reduce_output: sum over ranks.
        reduce_dtype: dtype of that sum.
        tensor_model_parallel_group: the ranks; None: those of tensor parallelism.
        tile_cc: not used; how the compiler cuts the sum.
        rank_ordering: which part each rank has.
    """

    partition_dim = 1

    def __init__(
        self,
        input_size: int,
        output_size: int,
        bias: bool = True,
        input_is_parallel: bool = False,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        stride: int = 1,
        init_method: Initializer | None = None,
        sequence_parallel_enabled: bool = False,
        sequence_dimension: int | None = None,
        keep_master_weight: bool = False,
        skip_bias_add: bool = False,
        pad: bool = False,
        reduce_output: bool = True,
        reduce_dtype: torch.dtype = torch.float32,
        tensor_model_parallel_group: dist.ProcessGroup | None = None,
        tile_cc: bool = False,
        rank_ordering: list[int] | None = None,
    ) -> None:
        options = {name: value for name, value in locals().items() if name not in ("self", "__class__", "bias")}
        super().__init__()
        self.add_bias = bias
        self._keep(options)
        if sequence_parallel_enabled and not input_is_parallel:
            message = "A row-parallel layer cannot divide inputs which are parts of a sequence."
            raise ConfigError(message, hint="Pass input_is_parallel=True.")
        if pad:
            self.pad_size = get_padding_length(input_size, self.tp_size)
        self.input_size = input_size + self.pad_size
        self.input_size_per_partition = divide(self.input_size, self.tp_size)
        self._make_weight(output_size, self.input_size)
        self._make_bias(output_size, self.input_size, is_divided=False)
        if self.bias is not None:
            self.bias.sequence_parallel_enabled = sequence_parallel_enabled

    def forward(self, input_: torch.Tensor, slice_indices: torch.Tensor | None = None) -> Any:
        """Return the outputs, or outputs and bias.

        Args:
            input_: this rank's part of the inputs, or inputs that ranks have alike.
            slice_indices: columns of the weight to use; None: all.
        """
        self._require_no_padding_in_training()
        group = self.tensor_parallel_group
        if not self.input_is_parallel:
            input_ = F.pad(input_, (0, self.pad_size)) if self.pad_size else input_
            input_ = mappings.scatter_to_tensor_model_parallel_region(input_, group)
        output = F.linear(input_, self.weight if slice_indices is None else self.weight[:, slice_indices])
        if self.reduce_output and self.tp_size > 1:
            output = self._summed(output)
        if self.skip_bias_add:
            return output, self.bias
        return output if self.bias is None else output + self.bias

    def _summed(self, output: torch.Tensor) -> torch.Tensor:
        group, dtype = self.tensor_parallel_group, output.dtype
        output = output.to(self.reduce_dtype or dtype)
        if self.sequence_parallel_enabled:
            dim = self.sequence_dimension
            return mappings.reduce_scatter_to_sequence_parallel_region(output, dim, group, dtype).to(dtype)
        return mappings.reduce_from_tensor_model_parallel_region(output, group).to(dtype)

    def preshard_hook(self, model_state_dict: dict[str, torch.Tensor], prefix: str) -> None:
        """Pad a tensor of a whole checkpoint as this layer is padded.

        Args:
            model_state_dict: the tensors, by name.
            prefix: name of this layer's weight or bias.
        """
        if self.pad_size and not prefix.endswith("bias"):
            model_state_dict[prefix] = F.pad(model_state_dict[prefix], (0, self.pad_size))
