"""Mixtures of experts: routers, experts whose width ranks divide, and `MoE`.

Every rank has a part of the width of every expert, and computes all experts for all tokens; the results of experts that
a token did not choose count zero. So shapes are static, no token is dropped, and the numbers are those of a model that
sends tokens to experts.

    layer = MoE(RouterTopK(8, 2, 64), ExpertMLPs(8, 2, 64, 128, "silu", glu_mlp=True, capacity_factor=None))
    (output,) = layer(hidden_states)
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from ..errors import ConfigError, NotSupportedError, invalid_choice
from . import mappings
from .layers import Initializer, parallel_parameter
from .parallel_state import EXPERT

ACT2FN = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "swish": F.silu,
    "tanh": torch.tanh,
}
"""Activations by their names in transformers."""
_CPU = torch.device("cpu")


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


class RouterTopK(nn.Module):
    """A linear layer that scores experts; a token goes to those with the largest scores.

    Args:
        num_experts: number of experts.
        top_k: experts of a token.
        hidden_size: size of a token.
        sequence_parallel_enabled: `MoE` gets parts of sequences, and gathers them.
        sequence_dimension: dimension of the sequence; None: 0.
        dtype: dtype of the weight.
        device: device of the weight.
        bias: add a bias.
        tensor_model_parallel_group: not used; ranks have the router alike.
        act_fn: "softmax" or "sigmoid", which makes affinities of scores.
        apply_act_fn_over_topk: of the largest scores only.
        jitter_eps: noise of inputs in training.
    """

    def __init__(
        self,
        num_experts: int,
        top_k: int,
        hidden_size: int,
        sequence_parallel_enabled: bool = False,
        sequence_dimension: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device = _CPU,
        bias: bool = False,
        tensor_model_parallel_group: dist.ProcessGroup | None = None,
        act_fn: str = "softmax",
        apply_act_fn_over_topk: bool = False,
        jitter_eps: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0 < top_k <= num_experts:
            message = f"A token cannot choose {top_k} of {num_experts} experts."
            raise ConfigError(message, hint="Pass a top_k from 1 to num_experts.", top_k=top_k, num_experts=num_experts)
        if act_fn not in ("sigmoid", "softmax"):
            raise invalid_choice("act_fn", act_fn, ["sigmoid", "softmax"])
        self.num_experts, self.top_k, self.hidden_size, self.act_fn = num_experts, top_k, hidden_size, act_fn
        self.sequence_parallel_enabled, self.sequence_dimension = sequence_parallel_enabled, sequence_dimension
        self.apply_act_fn_over_topk, self.jitter_eps = apply_act_fn_over_topk, jitter_eps
        self.linear_router = nn.Linear(hidden_size, num_experts, bias=bias, dtype=dtype, device=device)

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return scores and affinities of all experts, and the chosen ones, a row for each token.

        Args:
            hidden_states: tokens.
        """
        inputs = hidden_states.to(self.linear_router.weight.dtype)
        if self.jitter_eps and self.training:
            inputs = inputs * torch.empty_like(inputs).uniform_(1 - self.jitter_eps, 1 + self.jitter_eps)
        logits = self.linear_router(inputs).reshape(-1, self.num_experts)
        largest, chosen = logits.float().topk(self.top_k, dim=1)
        if self.apply_act_fn_over_topk:
            affinities = torch.zeros_like(logits, dtype=torch.float32).scatter(1, chosen, self._activated(largest))
        else:
            affinities = self._activated(logits.float())
        return logits, affinities.to(hidden_states.dtype), chosen

    def _activated(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.sigmoid() if self.act_fn == "sigmoid" else scores.softmax(1)


class ExpertLinear(nn.Module):
    """A weight for each expert, of which ranks divide a dimension.

    Args:
        num_experts: number of experts.
        input_size: number of inputs.
        output_size: number of outputs.
        dim: the dimension of the weight that ranks divide: 1 for inputs, 2 for outputs.
        stride: pieces of a rank.
        init_method: draws the weights of one expert, in place; None: as `torch.nn.Linear`.
        dtype: dtype of the weight.
        device: device of the weight.
        group: the ranks.
    """

    def __init__(
        self,
        num_experts: int,
        input_size: int,
        output_size: int,
        *,
        dim: int,
        stride: int = 1,
        init_method: Initializer | None = None,
        dtype: torch.dtype,
        device: torch.device,
        group: mappings.Group,
    ) -> None:
        super().__init__()
        draw: Initializer = init_method or (lambda one: nn.init.kaiming_uniform_(one.T, a=math.sqrt(5)))

        def draw_all(whole: torch.Tensor) -> None:
            for one in whole:
                draw(one)

        shape = (num_experts, input_size, output_size)
        self.weight = parallel_parameter(shape, dim, draw_all, group=group, stride=stride, dtype=dtype, device=device)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the outputs of each expert.

        Args:
            input: tokens [T, H], or those of each expert [E, T, H].
        """
        return input @ self.weight


class Experts(nn.Module):
    """The layers of all experts; with glu_mlp, gate and up projections are one weight."""

    def __init__(
        self,
        num_experts: int,
        hidden_size: int,
        intermediate_size: int,
        *,
        hidden_act: str,
        is_gated: bool,
        init_method: Initializer | None,
        output_layer_init_method: Initializer | None,
        dtype: torch.dtype,
        device: torch.device,
        group: mappings.Group,
    ) -> None:
        super().__init__()
        rest: dict[str, Any] = {"dtype": dtype, "device": device, "group": group}
        first = {"dim": 2, "init_method": init_method, **rest}
        self.is_gated, self.activation = is_gated, ACT2FN[hidden_act]
        if is_gated:
            self.gate_up_proj = ExpertLinear(num_experts, hidden_size, 2 * intermediate_size, stride=2, **first)
        else:
            self.up_proj = ExpertLinear(num_experts, hidden_size, intermediate_size, **first)
        self.down_proj = ExpertLinear(
            num_experts, intermediate_size, hidden_size, dim=1, init_method=output_layer_init_method, **rest
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of the sum of each expert, for each token.

        Args:
            tokens: tokens [T, H].
        """
        if self.is_gated:
            gate, up = self.gate_up_proj(tokens).chunk(2, -1)
            return self.down_proj(self.activation(gate) * up)
        return self.down_proj(self.activation(self.up_proj(tokens)))


class ExpertMLPs(nn.Module):
    """Feed-forward layers that tokens choose from.

    Args:
        num_experts: number of experts.
        top_k: experts of a token.
        hidden_size: size of a token.
        intermediate_size: width of an expert.
        hidden_act: name of the activation.
        glu_mlp: multiply an activated projection by another.
        capacity_factor: None; no token is dropped. A number is an error where it would drop tokens.
        normalize_top_k_affinities: let the affinities of a token's experts sum to 1.
        init_method: draws the first weights of an expert, in place.
        output_layer_init_method: draws the last weight of an expert, in place.
        dtype: dtype of weights.
        device: device of weights.
        tensor_model_parallel_group: the ranks; None: those of tensor parallelism.
    """

    def __init__(
        self,
        num_experts: int,
        top_k: int,
        hidden_size: int,
        intermediate_size: int,
        hidden_act: str,
        glu_mlp: bool,
        capacity_factor: float | None,
        normalize_top_k_affinities: bool = False,
        init_method: Initializer | None = None,
        output_layer_init_method: Initializer | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device = _CPU,
        tensor_model_parallel_group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        if hidden_act not in ACT2FN:
            raise invalid_choice("hidden_act", hidden_act, list(ACT2FN))
        if capacity_factor is not None and capacity_factor * top_k < num_experts:
            message = f"capacity_factor={capacity_factor} would drop tokens."
            raise NotSupportedError(message, hint="Pass None.", capacity_factor=capacity_factor)
        if EXPERT.is_made() and EXPERT.size() > 1:
            message = f"{EXPERT.size()} ranks cannot divide experts."
            raise NotSupportedError(message, hint="Divide their width: use tensor parallelism.", ranks=EXPERT.size())
        self.num_experts, self.top_k, self.hidden_size = num_experts, top_k, hidden_size
        self.normalize_top_k_affinities = normalize_top_k_affinities
        self.tensor_parallel_group = mappings.group_or_tensor(tensor_model_parallel_group)
        self.mlp_op = Experts(
            num_experts,
            hidden_size,
            intermediate_size,
            hidden_act=hidden_act,
            is_gated=glu_mlp,
            init_method=init_method,
            output_layer_init_method=output_layer_init_method,
            dtype=dtype,
            device=device,
            group=self.tensor_parallel_group,
        )

    def forward(
        self, hidden_states: torch.Tensor, expert_affinities: torch.Tensor, expert_index: torch.Tensor
    ) -> torch.Tensor:
        """Return this rank's part of a sum over ranks, for each token.

        Args:
            hidden_states: tokens [T, H].
            expert_affinities: affinity of each token with each expert [T, E].
            expert_index: the chosen experts [T, top_k].
        """
        chosen = F.one_hot(expert_index, self.num_experts).sum(1).to(expert_affinities.dtype)
        shares = expert_affinities * chosen
        if self.normalize_top_k_affinities:
            shares = shares / shares.sum(1, keepdim=True)
        results = self.mlp_op(hidden_states)
        return (results * shares.T.unsqueeze(-1)).sum(0)


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
        token_shuffle_group_size: 1; no token is dropped, so the order of tokens does not matter.
    """

    def __init__(
        self,
        router: RouterTopK,
        expert_mlps: ExpertMLPs,
        shared_experts: nn.Module | None = None,
        rmsnorm: nn.Module | None = None,
        sequence_parallel_enabled: bool = False,
        sequence_dimension: int | None = None,
        return_router_logits: bool = False,
        return_expert_index: bool = False,
        token_shuffle_group_size: int = 1,
    ) -> None:
        super().__init__()
        for name in ("num_experts", "top_k", "hidden_size"):
            if getattr(router, name) != getattr(expert_mlps, name):
                message = (
                    f"{name} is {getattr(router, name)} for the router and {getattr(expert_mlps, name)} for experts."
                )
                raise ConfigError(message, hint="Make both with the same sizes.", option=name)
        if router.sequence_parallel_enabled and not sequence_parallel_enabled:
            message = "The router has parts of sequences, and the layer has not."
            raise ConfigError(message, hint="Pass sequence_parallel_enabled=True.", option="sequence_parallel_enabled")
        shared = {} if shared_experts is None else vars(shared_experts)
        if shared.get("sequence_parallel_enabled", sequence_parallel_enabled) != sequence_parallel_enabled:
            message = "Shared experts and the layer do not both have parts of sequences."
            raise ConfigError(message, hint="Pass both the same value.", option="sequence_parallel_enabled")
        if token_shuffle_group_size != 1:
            raise NotSupportedError("Tokens are not shuffled.", hint="Leave token_shuffle_group_size out.")
        self.router, self.expert_mlps, self.shared_experts, self.rmsnorm = router, expert_mlps, shared_experts, rmsnorm
        self.sequence_parallel_enabled, self.sequence_dimension = sequence_parallel_enabled, sequence_dimension or 0
        self.return_router_logits, self.return_expert_index = return_router_logits, return_expert_index

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the results, and what else was asked for.

        Args:
            hidden_states: tokens, or this rank's part of a sequence of them.
        """
        group, dim = self.expert_mlps.tensor_parallel_group, self.sequence_dimension
        inputs = hidden_states if self.rmsnorm is None else self.rmsnorm(hidden_states)
        if self.sequence_parallel_enabled:
            routed = mappings.gather_from_sequence_parallel_region(inputs, dim, False, group)
            tokens = mappings.gather_from_sequence_parallel_region(inputs, dim, True, group)
        else:
            routed, tokens = inputs, mappings.copy_to_tensor_model_parallel_region(inputs, group)
        logits, affinities, chosen = self.router(routed)
        affinities = mappings.copy_to_tensor_model_parallel_region(affinities, group)
        part = self.expert_mlps(tokens.reshape(-1, tokens.shape[-1]), affinities, chosen).reshape(tokens.shape)
        if self.sequence_parallel_enabled:
            output = mappings.reduce_scatter_to_sequence_parallel_region(part, dim, group)
        else:
            output = mappings.reduce_from_tensor_model_parallel_region(part, group)
        if self.shared_experts is not None:
            output = output + self.shared_experts(inputs)
        extra = [logits] * self.return_router_logits + [chosen] * self.return_expert_index
        return (output, *extra)
