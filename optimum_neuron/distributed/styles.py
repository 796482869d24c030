"""Styles of sequence parallelism: between blocks, each core has its part of the tokens; within, all of them.

Norms and residual sums then work on a part, and what the cores keep for the backward pass is divided by their number
(Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", section 4.2.2). The styles extend
transformers' own (`transformers.distributed.tensor_parallel`) and are named in the plans of `plans.py`. They know
nothing of models.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement
from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES
from transformers.distributed.tensor_parallel import RowwiseParallel, TensorParallelLayer

from ..errors import ModelError, refusal

_TOKENS = Shard(1)
"""Hidden states are (batch, tokens, features)."""


class SplitTokens(TensorParallelLayer):
    """Of the hidden states that a module is given whole, each core takes its part of the tokens."""

    def transform_inputs_pre_forward(self, module: Any, args: Any, kwargs: Any, mesh: DeviceMesh) -> Any:
        """Split the first input, or `hidden_states`."""
        return _with_hidden_states(args, kwargs, lambda hidden: _split(hidden, mesh))


class JoinTokens(TensorParallelLayer):
    """A module is given all tokens, where each core has a part of them."""

    def transform_inputs_pre_forward(self, module: Any, args: Any, kwargs: Any, mesh: DeviceMesh) -> Any:
        """Join the first input, or `hidden_states`."""
        return _with_hidden_states(args, kwargs, lambda hidden: redistribute(hidden, mesh, _TOKENS, Replicate()))


class JoinedResult(TensorParallelLayer):
    """Of a module whose result is a part of the tokens on each core, every core has all of them."""

    def transform_output_post_forward(self, module: Any, output: Any, mesh: DeviceMesh) -> Any:
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
    raise ModelError(
        refusal(
            asked=f"sequence_parallel of a batch with {hidden.shape[1]} tokens in each row",
            found=f"{hidden.shape[1]} is not a multiple of tensor_parallel_size={mesh.size()}",
            why="each core has as many tokens as the others",
            do=f"pass pad_to_multiple_of={mesh.size()} to the data collator, or leave sequence_parallel out",
        )
    )


def redistribute(
    local: torch.Tensor, mesh: DeviceMesh, present: Placement, wanted: Placement, *, gradient: Placement | None = None
) -> torch.Tensor:
    """Exchange what the cores of a mesh have of a tensor.

    Args:
        local: this core's.
        mesh: of one dimension.
        present: how it is placed.
        wanted: how it is to be.
        gradient: how gradients of the result are placed; as the result, where nothing is said.
    """
    placed = DTensor.from_local(local, mesh, [present], run_check=False).redistribute(placements=[wanted])
    return placed.to_local(grad_placements=None if gradient is None else [gradient])
