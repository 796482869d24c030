"""Shared experts: a feed-forward layer that every token passes, beside the experts that it chooses.

layer = MoE(router, experts, shared_experts=SharedExperts(64, 128, 1, "silu"))
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..errors import NotSupportedError, invalid_choice
from .expert_layers import ACT2FN
from .layers import ColumnParallelLinear, RowParallelLinear


class SharedExperts(nn.Module):
    """A gated feed-forward layer of all tokens, whose width is that of several experts and which ranks divide.

    Args:
        hidden_size: size of a token.
        intermediate_size: width of an expert.
        num_shared_experts: number of experts.
        hidden_act: name of the activation.
        dtype: dtype of weights.
        tensor_model_parallel_group: the ranks; None: those of tensor parallelism.
        fused_gate_up_projection: keep gate and up projections in one weight.
        sequence_parallel_enabled: tokens and results are this rank's part of a sequence.
        sequence_dimension: dimension of the sequence; None: 0.
        reduce_dtype: dtype in which ranks sum.
        transpose_weights: False.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        num_shared_experts: int,
        hidden_act: str,
        dtype: torch.dtype = torch.float32,
        tensor_model_parallel_group: dist.ProcessGroup | None = None,
        fused_gate_up_projection: bool = False,
        sequence_parallel_enabled: bool = False,
        sequence_dimension: int | None = None,
        reduce_dtype: torch.dtype = torch.float32,
        transpose_weights: bool = False,
    ) -> None:
        super().__init__()
        if transpose_weights:
            message = "Shared experts have weights with outputs first."
            raise NotSupportedError(message, hint="Leave transpose_weights out.", option="transpose_weights")
        if hidden_act not in ACT2FN:
            raise invalid_choice("hidden_act", hidden_act, list(ACT2FN))
        rest: dict[str, Any] = {
            "bias": False,
            "dtype": dtype,
            "tensor_model_parallel_group": tensor_model_parallel_group,
            "sequence_parallel_enabled": sequence_parallel_enabled,
            "sequence_dimension": sequence_dimension,
            "reduce_dtype": reduce_dtype,
        }
        width, self.activation = intermediate_size * num_shared_experts, ACT2FN[hidden_act]
        self.fused_gate_up_projection, self.sequence_parallel_enabled = (
            fused_gate_up_projection,
            sequence_parallel_enabled,
        )
        if fused_gate_up_projection:
            self.gate_up_proj = ColumnParallelLinear(hidden_size, 2 * width, gather_output=False, stride=2, **rest)
        else:
            self.gate_proj = ColumnParallelLinear(hidden_size, width, gather_output=False, **rest)
            self.up_proj = ColumnParallelLinear(hidden_size, width, gather_output=False, **rest)
        self.down_proj = RowParallelLinear(width, hidden_size, input_is_parallel=True, **rest)

    def forward(self, hidden_states: torch.Tensor, seq_len: int | None = None) -> torch.Tensor:
        """Return the results.

        Args:
            hidden_states: tokens.
            seq_len: not used.
        """
        if self.fused_gate_up_projection:
            gate, up = self.gate_up_proj(hidden_states).chunk(2, -1)
        else:
            gate, up = self.gate_proj(hidden_states), self.up_proj(hidden_states)
        output: torch.Tensor = self.down_proj(self.activation(gate) * up)
        return output
