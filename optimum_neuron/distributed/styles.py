"""Styles of sequence parallelism: between blocks, each core has its part of the tokens; within, all of them.

Norms and residual sums then work on a part, and the activations that cores keep for the backward pass are divided by
their number (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", section 4.2.2). The
styles extend transformers' own (`transformers.distributed.tensor_parallel`) and are named in the plans of `plans.py`.
They know nothing of models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement
from transformers.distributed.tensor_parallel import ALL_PARALLEL_STYLES, RowwiseParallel, TensorParallelLayer

from ..errors import ModelError

if TYPE_CHECKING:
    from torch import nn

_TOKENS = Shard(1)
"""Hidden states are (batch, tokens, features)."""


class SplitTokens(TensorParallelLayer):
    """Splits a module's whole hidden states: each core takes its part of the tokens."""

    def transform_inputs_pre_forward(self, module: nn.Module, args: object, kwargs: object, mesh: DeviceMesh) -> Any:
        """Split the first input, or `hidden_states`."""
        return _with_hidden_states(args, kwargs, lambda hidden: _split(hidden, mesh))


class JoinTokens(TensorParallelLayer):
    """Gathers the tokens before a module, where each core has a part of them."""

    def transform_inputs_pre_forward(self, module: nn.Module, args: object, kwargs: object, mesh: DeviceMesh) -> Any:
        """Join the first input, or `hidden_states`."""
        return _with_hidden_states(args, kwargs, lambda hidden: redistribute(hidden, mesh, _TOKENS, Replicate()))


class JoinedResult(TensorParallelLayer):
    """Gathers the tokens of a module's result, where each core has a part of them."""

    def transform_output_post_forward(self, module: nn.Module, output: object, mesh: DeviceMesh) -> Any:
        """Join the result, or the first of several."""
        hidden, *others = output if isinstance(output, tuple) else (output,)
        whole = redistribute(hidden, mesh, _TOKENS, Replicate())
        return (whole, *others) if isinstance(output, tuple) else whole


ALL_PARALLEL_STYLES.register("join_tokens", JoinTokens())
ALL_PARALLEL_STYLES.register("rowwise_split_tokens", RowwiseParallel(input_layouts=Shard(-1), output_layouts=_TOKENS))


def _with_hidden_states(args: Any, kwargs: Any, change: Any) -> Any:
    if args:
        return (change(args[0]), *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": change(kwargs["hidden_states"])}


def _split(hidden: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    if hidden.shape[1] % mesh.size() == 0:
        return redistribute(hidden, mesh, Replicate(), _TOKENS)
    message = f"sequence_parallel cannot split {hidden.shape[1]} tokens over tensor_parallel_size={mesh.size()} cores."
    hint = f"Pass pad_to_multiple_of={mesh.size()} to the data collator, or remove sequence_parallel."
    raise ModelError(message, hint=hint, option="sequence_parallel", num_tokens=hidden.shape[1])


def redistribute(
    local: torch.Tensor, mesh: DeviceMesh, source: Placement, target: Placement, *, gradient: Placement | None = None
) -> torch.Tensor:
    """Redistribute a tensor over a mesh of one dimension; gradients have the placement of the result by default."""
    placed = DTensor.from_local(local, mesh, [source], run_check=False).redistribute(placements=[target])
    return placed.to_local(grad_placements=None if gradient is None else [gradient])
