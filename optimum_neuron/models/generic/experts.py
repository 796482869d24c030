"""The shared implementation of experts, registered with transformers as one more.

transformers' own static one copies the weights of each token's experts: 56 GiB for a prompt of 128 tokens of
Mixtral-8x7B. `common/experts.py` says what is done instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..common import run_experts

if TYPE_CHECKING:
    from torch import nn

NAME = "optimum_neuron"
"""Value of `_experts_implementation` that selects `experts_forward`."""


def register() -> str:
    """Make transformers know the implementation; return its name."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register(NAME, experts_forward)
    return NAME


def experts_forward(
    experts: nn.Module, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """Run a module of experts on tokens [N, D], routed by `top_k_index` and `top_k_weights` [N, K]."""
    return run_experts(experts, hidden_states, top_k_index, top_k_weights)
