"""Layers of several experts: weights with a dimension of experts, which ranks of expert parallelism divide.

Ranks of tensor parallelism divide the width of each expert. A rank of expert parallelism has the experts
`n * rank` to `n * (rank + 1) - 1`, where n is the number of experts over the number of ranks.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from . import mappings
from .layers import BaseParallelLinear, ColumnParallelLinear, RowParallelLinear
from .moe_options import GLUType, RoutedExpertsMLPOpsConfig
from .parameters import Initializer, draw, parallel_parameter

ACT2FN = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "leaky_relu": F.leaky_relu,
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "swish": F.silu,
    "tanh": torch.tanh,
}
"""Activations by their names in transformers."""


class ExpertLinear(BaseParallelLinear):
    """A weight for each expert, of which ranks divide a dimension; scripts ask it for a weight, as any parallel layer.

    Args:
        num_experts: number of experts, of all ranks.
        input_size: number of inputs.
        output_size: number of outputs.
        stride: pieces of a rank.
        bias: add a bias.
        init_method: draws the weights of one expert, in place; None: as `torch.nn.Linear`.
        dtype: dtype of the weight.
        device: device of the weight.
        tensor_model_parallel_group: the ranks of tensor parallelism.
        expert_model_parallel_group: the ranks that divide experts.
    """

    dim: int
    """The dimension of the weight that ranks divide: 1 for inputs, 2 for outputs."""

    def __init__(
        self,
        num_experts: int,
        input_size: int,
        output_size: int,
        bias: bool = False,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        stride: int = 1,
        init_method: Initializer | None = None,
        tensor_model_parallel_group: mappings.Group = None,
        expert_model_parallel_group: mappings.Group = None,
    ) -> None:
        nn.Module.__init__(self)
        group = mappings.group_or_tensor(tensor_model_parallel_group)
        rest = {"group": group, "stride": stride, "dtype": dtype, "device": device}
        rest["expert_group"] = mappings.group_or_expert(expert_model_parallel_group)
        self.tensor_parallel_group, self.init_method, self.keep_padded_output = group, init_method, True
        self.weight = parallel_parameter((num_experts, input_size, output_size), self.dim, self._draw, **rest)
        self.num_parts = mappings.size_of(group) if self.dim == 1 else 1
        if not bias:
            self.register_parameter("bias", None)
            return
        bound = 1 / math.sqrt(input_size)
        shape, axis = (num_experts, output_size), 1 if self.dim == 2 else None
        self.bias = parallel_parameter(shape, axis, lambda whole: nn.init.uniform_(whole, -bound, bound), **rest)

    def _draw(self, whole: torch.Tensor) -> None:
        for one in whole:
            if self.init_method is None:
                nn.init.kaiming_uniform_(one.T, a=math.sqrt(5))
            else:
                self.init_method(one)

    def init_weight_cpu(self) -> None:
        """Draw the weight again, as when the layer was made."""
        draw(self.weight, self._draw, mappings.rank_in(self.tensor_parallel_group))

    def forward(self, input: torch.Tensor, expert_indices: torch.Tensor | None = None) -> torch.Tensor:
        """Return the outputs of each expert of this rank.

        Args:
            input: tokens [T, H], or those of each expert [E, T, H].
            expert_indices: experts of this rank that compute; None: all.
        """
        weight = self.weight if expert_indices is None else self.weight[expert_indices]
        output = input @ weight
        if self.bias is None:
            return output
        bias = self.bias if expert_indices is None else self.bias[expert_indices]
        if self.num_parts > 1:  # each rank adds a part, and all of them have the gradient of the whole
            bias = mappings.apply(bias, lambda whole: whole / self.num_parts, mappings.same)
        return output + bias.unsqueeze(1)

    def preshard_hook(self, model_state_dict: dict[str, torch.Tensor], prefix: str) -> None:
        """Do nothing: experts are not padded.

        Args:
            model_state_dict: tensors of a whole checkpoint.
            prefix: name of the weight.
        """

    def extra_repr(self) -> str:
        """Return sizes, for `print`."""
        count, rows, columns = self.weight.shape
        return f"experts={count}, in_features={rows}, out_features={columns}"


class ExpertFusedColumnParallelLinear(ExpertLinear, ColumnParallelLinear):
    """A layer of each expert, of which ranks divide the outputs."""

    dim = 2


class ExpertFusedRowParallelLinear(ExpertLinear, RowParallelLinear):
    """A layer of each expert, of which ranks divide the inputs; they add the bias once together."""

    dim = 1


class Experts(nn.Module):
    """The layers of this rank's experts; with glu_mlp, gate and up projections are one weight.

    Args:
        options: sizes and options.
        dtype: dtype of weights.
        device: device of weights.
        group: the ranks of tensor parallelism.
        expert_group: the ranks that divide experts.
    """

    def __init__(
        self,
        options: RoutedExpertsMLPOpsConfig,
        *,
        dtype: torch.dtype,
        device: torch.device,
        group: mappings.Group,
        expert_group: mappings.Group,
    ) -> None:
        super().__init__()
        self.options, count = options, options.num_experts
        hidden, width = options.hidden_size, options.intermediate_size
        rest = {"dtype": dtype, "device": device, "bias": options.bias, "tensor_model_parallel_group": group}
        rest["expert_model_parallel_group"] = expert_group
        first = {"init_method": options.input_layer_init_method, **rest}
        if options.glu_mlp:
            self.gate_up_proj = ExpertFusedColumnParallelLinear(count, hidden, 2 * width, stride=2, **first)
        else:
            self.up_proj = ExpertFusedColumnParallelLinear(count, hidden, width, **first)
        self.down_proj = ExpertFusedRowParallelLinear(
            count, width, hidden, init_method=options.output_layer_init_method, **rest
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of the sum of each expert, for each token.

        Args:
            tokens: tokens [T, H], or those of each expert [E, T, H].
        """
        options = self.options
        activation = ACT2FN[options.hidden_act]
        if not options.glu_mlp:
            return self.down_proj(activation(self.up_proj(tokens)))
        gate, up = self.gate_up_proj(tokens).chunk(2, -1)
        gate = _clamped(gate, options.gate_clamp_lower_limit, options.gate_clamp_upper_limit)
        up = _clamped(up, options.up_clamp_lower_limit, options.up_clamp_upper_limit) + options.hidden_act_bias
        scale = activation(options.hidden_act_scaling_factor * gate)
        return self.down_proj((gate * scale if options.glu_type is GLUType.SWIGLU else scale) * up)


def _clamped(values: torch.Tensor, lower: float | None, upper: float | None) -> torch.Tensor:
    return values if lower is None and upper is None else values.clamp(lower, upper)
