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
from .moe_options import GLUType, RoutedExpertsMLPOpsConfig
from .parameters import Initializer, parallel_parameter

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


class ExpertLinear(nn.Module):
    """A weight for each expert, of which ranks divide a dimension.

    Args:
        num_experts: number of experts, of all ranks.
        input_size: number of inputs.
        output_size: number of outputs.
        dim: the dimension of the weight that ranks divide: 1 for inputs, 2 for outputs.
        stride: pieces of a rank.
        bias: add a bias; where ranks divide inputs, they add it once together.
        init_method: draws the weights of one expert, in place; None: as `torch.nn.Linear`.
        dtype: dtype of the weight.
        device: device of the weight.
        group: the ranks of tensor parallelism.
        expert_group: the ranks that divide experts.
    """

    def __init__(
        self,
        num_experts: int,
        input_size: int,
        output_size: int,
        *,
        dim: int,
        stride: int = 1,
        bias: bool = False,
        init_method: Initializer | None = None,
        dtype: torch.dtype,
        device: torch.device,
        group: mappings.Group,
        expert_group: mappings.Group = None,
    ) -> None:
        super().__init__()
        draw: Initializer = init_method or (lambda one: nn.init.kaiming_uniform_(one.T, a=math.sqrt(5)))

        def draw_all(whole: torch.Tensor) -> None:
            for one in whole:
                draw(one)

        rest = {"group": group, "stride": stride, "dtype": dtype, "device": device, "expert_group": expert_group}
        self.weight = parallel_parameter((num_experts, input_size, output_size), dim, draw_all, **rest)
        self.num_parts = mappings.size_of(group) if dim == 1 else 1
        self.bias: nn.Parameter | None = None
        if bias:
            bound = 1 / math.sqrt(input_size)
            shape, axis = (num_experts, output_size), 1 if dim == 2 else None
            self.bias = parallel_parameter(shape, axis, lambda whole: nn.init.uniform_(whole, -bound, bound), **rest)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the outputs of each expert of this rank.

        Args:
            input: tokens [T, H], or those of each expert [E, T, H].
        """
        output = input @ self.weight
        if self.bias is None:
            return output
        if self.num_parts > 1:  # each rank adds a part, and all of them have the gradient of the whole
            share = mappings.apply(self.bias, lambda bias: bias / self.num_parts, mappings.same)
            return output + share.unsqueeze(1)
        return output + self.bias.unsqueeze(1)


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
        rest = {"dtype": dtype, "device": device, "group": group, "expert_group": expert_group, "bias": options.bias}
        first = {"dim": 2, "init_method": options.input_layer_init_method, **rest}
        if options.glu_mlp:
            self.gate_up_proj = ExpertLinear(count, hidden, 2 * width, stride=2, **first)
        else:
            self.up_proj = ExpertLinear(count, hidden, width, **first)
        self.down_proj = ExpertLinear(count, width, hidden, dim=1, init_method=options.output_layer_init_method, **rest)

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
