"""Experts of a mixture with static shapes, registered with transformers as one more implementation.

transformers' own static one copies the weights of each token's experts: 56 GiB for a prompt of 128 tokens of
Mixtral-8x7B. Here that is done for few tokens only. For more, every expert runs on all tokens in one batched product
that reads each weight once, and what the router did not choose counts as zero. The implementations that sort tokens
by expert have shapes that follow the routing, and sorting is nothing that the chip does.

Shape legend: E experts, N tokens, K experts of a token, D hidden, F width of an expert.
"""

from __future__ import annotations

from typing import Any

import torch

NAME = "optimum_neuron"
"""Value of `_experts_implementation` that selects `experts_forward`."""


def register() -> str:
    """Make transformers know the implementation; return its name."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register(NAME, experts_forward)
    return NAME


def experts_forward(
    experts: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """Run a module of experts on tokens [N, D], routed by `top_k_index` and `top_k_weights` [N, K].

    Weights are copied where the tokens take fewer experts than there are, so that a decode step reads only those.
    """
    if top_k_index.numel() < experts.num_experts:
        from transformers.integrations.moe import batched_mm_experts_forward

        return batched_mm_experts_forward(experts, hidden_states, top_k_index, top_k_weights)
    return _every_expert(experts, hidden_states, top_k_index, top_k_weights)


def _every_expert(
    experts: Any, x_ND: torch.Tensor, top_k_index_NK: torch.Tensor, top_k_weights_NK: torch.Tensor
) -> torch.Tensor:
    name = "gate_up_proj" if experts.has_gate else "up_proj"
    wide_ENF = _linear(experts, name, x_ND)
    wide_ENF = experts._apply_gate(wide_ENF) if experts.has_gate else experts.act_fn(wide_ENF)
    out_END = _linear(experts, "down_proj", wide_ENF)
    if experts.has_post_expert_norm:
        out_END = experts.post_expert_norm(out_END)
    chosen_ENK = top_k_index_NK == torch.arange(experts.num_experts)[:, None, None]
    weight_EN1 = (chosen_ENK * top_k_weights_NK).sum(-1, keepdim=True)
    # An expert that was not chosen may overflow, and zero times infinity is not zero.
    weighted_END = torch.where(chosen_ENK.any(-1, keepdim=True), out_END * weight_EN1, 0.0)
    return weighted_END.sum(0).to(x_ND.dtype)


def _linear(experts: Any, name: str, x: torch.Tensor) -> torch.Tensor:
    """Every expert's projection of the same tokens [N, D], or of its own [E, N, D]."""
    weight = getattr(experts, name)
    out = torch.matmul(x, weight if experts.is_transposed else weight.transpose(1, 2))
    return out + getattr(experts, f"{name}_bias")[:, None] if experts.has_bias else out
