"""A mixture of experts: `MoE` routes tokens to experts, and `load_balancing_loss_func` says how unequally.

layer = MoE(RouterTopK(8, 2, 64), ExpertMLPs(8, 2, 64, 128, "silu", glu_mlp=True, capacity_factor=None))
(output,) = layer(hidden_states)
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from ..errors import ConfigError, NotSupportedError
from . import mappings
from .experts import ExpertMLPsV2
from .parallel_state import TOKEN_SHUFFLE, initialize_token_shuffle_group
from .routers import RouterTopK
from .token_shuffling import token_shuffle, token_unshuffle


def load_balancing_loss_func(router_logits: torch.Tensor, num_experts: int, top_k: int) -> torch.Tensor:
    """Return how unequally tokens chose experts: the loss of Switch Transformers, 1 if they chose equally.

    Args:
        router_logits: a row for each token of each layer.
        num_experts: number of experts.
        top_k: experts of a token.
    """
    weights = router_logits.double().softmax(-1)
    chosen = F.one_hot(weights.topk(top_k).indices, num_experts).float().mean(0).sum(0)
    return (chosen * weights.float().mean(0)).sum() * (num_experts / top_k)


class MoE(nn.Module):
    """A router and its experts.

    Args:
        router: chooses the experts of each token.
        expert_mlps: the experts.
        shared_experts: a module that all tokens go through; its results are added.
        rmsnorm: a norm of the inputs.
        sequence_parallel_enabled: inputs and results are this rank's part of a sequence.
        sequence_dimension: dimension of the sequence; None: 0.
        return_router_logits: return the scores of experts too.
        return_expert_index: return the chosen experts too.
        token_shuffle_group_size: number of ranks of data parallelism that exchange tokens before they are routed, so
            that a limit of experts drops other ones; 1: none.
        token_shuffle_seed: draws the order in which they are exchanged; None: torch's state of random numbers.
        tensor_model_parallel_group: ranks that divide experts' width and sequences; None: those of the experts.
        init_tkg_module: False; the layer computes single tokens too.
        tkg_config: None.
    """

    def __init__(
        self,
        router: RouterTopK,
        expert_mlps: ExpertMLPsV2,
        shared_experts: nn.Module | None = None,
        rmsnorm: nn.Module | None = None,
        sequence_parallel_enabled: bool = False,
        sequence_dimension: int | None = None,
        return_router_logits: bool = False,
        return_expert_index: bool = False,
        token_shuffle_group_size: int = 1,
        token_shuffle_seed: int | None = None,
        tensor_model_parallel_group: dist.ProcessGroup | None = None,
        init_tkg_module: bool = False,
        tkg_config: None = None,
    ) -> None:
        super().__init__()
        if init_tkg_module or tkg_config is not None:
            message = "There is no other module for single tokens."
            raise NotSupportedError(message, hint="Leave init_tkg_module and tkg_config out.", option="tkg_config")
        options = expert_mlps.routed_experts_mlp_config
        for name in ("num_experts", "top_k", "hidden_size"):
            own, other = getattr(router, name), getattr(options, name)
            if own != other:
                message = f"{name} is {own} for the router and {other} for experts."
                raise ConfigError(message, hint="Make both with the same sizes.", option=name)
        if router.sequence_parallel_enabled and not sequence_parallel_enabled:
            message = "The router has parts of sequences, and the layer has not."
            raise ConfigError(message, hint="Pass sequence_parallel_enabled=True.", option="sequence_parallel_enabled")
        shared = {} if shared_experts is None else vars(shared_experts)
        if shared.get("sequence_parallel_enabled", sequence_parallel_enabled) != sequence_parallel_enabled:
            message = "Shared experts and the layer do not both have parts of sequences."
            raise ConfigError(message, hint="Pass both the same value.", option="sequence_parallel_enabled")
        if token_shuffle_group_size > 1 and _size_of_shuffles() != token_shuffle_group_size:
            initialize_token_shuffle_group(token_shuffle_group_size)
        self.token_shuffle_group_size, self.token_shuffle_seed = token_shuffle_group_size, token_shuffle_seed
        self.tensor_parallel_group = tensor_model_parallel_group or expert_mlps.tensor_parallel_group
        self.router, self.expert_mlps, self.shared_experts, self.rmsnorm = router, expert_mlps, shared_experts, rmsnorm
        self.sequence_parallel_enabled, self.sequence_dimension = sequence_parallel_enabled, sequence_dimension or 0
        self.return_router_logits, self.return_expert_index = return_router_logits, return_expert_index

    def forward(
        self,
        hidden_states: torch.Tensor,
        padding_mask: torch.Tensor | None = None,
        is_speculative_decoding: bool | None = None,
        residual: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """Return the results, and what else was asked for.

        Args:
            hidden_states: tokens, or this rank's part of a sequence of them.
            padding_mask: 0 for each token that is padding.
            is_speculative_decoding: not used.
            residual: is added to the inputs, and the sum is returned last.
        """
        if residual is not None:
            hidden_states = hidden_states + residual
        inputs = hidden_states if self.rmsnorm is None else self.rmsnorm(hidden_states)
        order = None
        if self.token_shuffle_group_size > 1:
            inputs, order = token_shuffle(inputs, seed=self.token_shuffle_seed)
        output, logits, chosen = self._mixed(inputs, padding_mask)
        if self.shared_experts is not None:
            output = output + self.shared_experts(inputs)
        if order is not None:
            output = token_unshuffle(output, order)
        extra = [logits] * self.return_router_logits + [chosen] * self.return_expert_index
        return (output, *extra) if residual is None else (output, *extra, hidden_states)

    def _mixed(
        self, inputs: torch.Tensor, padding_mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Results of the chosen experts, scores, and these experts."""
        group, dim = self.tensor_parallel_group, self.sequence_dimension
        if self.sequence_parallel_enabled:
            routed = mappings.gather_from_sequence_parallel_region(inputs, dim, False, group)
            tokens = mappings.gather_from_sequence_parallel_region(inputs, dim, True, group)
        else:
            routed, tokens = inputs, mappings.copy_to_tensor_model_parallel_region(inputs, group)
        logits, affinities, chosen = self.router(routed)
        affinities = mappings.copy_to_tensor_model_parallel_region(affinities, group)
        flat = tokens.reshape(-1, tokens.shape[-1])
        part = self.expert_mlps(flat, affinities, chosen, padding_mask=padding_mask).reshape(tokens.shape)
        if self.sequence_parallel_enabled:
            return mappings.reduce_scatter_to_sequence_parallel_region(part, dim, group), logits, chosen
        return mappings.reduce_from_tensor_model_parallel_region(part, group), logits, chosen


def _size_of_shuffles() -> int:
    return TOKEN_SHUFFLE.size() if TOKEN_SHUFFLE.is_made() else 1
