"""Routers, which choose experts for tokens: by the largest scores, equally many, or in groups.

layer = MoE(RouterSinkhorn(8, 1, 64), experts)
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..errors import ConfigError, NotSupportedError, NumericsError, invalid_choice

_ITERATIONS = 30
_CPU = torch.device("cpu")


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
        store_transposed_weights: have the weight transposed too, in `weight_T`, for NxD's kernels.
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
        store_transposed_weights: bool = False,
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
        if store_transposed_weights:
            self.weight_T = nn.Parameter(self.linear_router.weight.detach().T.clone(), requires_grad=False)

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


def balanced(scores: torch.Tensor, num_iters: int, tol: float | None = None) -> torch.Tensor:
    """Return weights of which each token and each expert has an equal sum, by Sinkhorn's algorithm.

    Args:
        scores: score of each token with each expert [T, E]; 0 iterations return them.
        num_iters: number of iterations.
        tol: the largest change of the experts' factors in the last iteration; None: any.

    Raises:
        NumericsError: the change is larger.
    """
    if num_iters == 0:
        return scores
    weights, (num_tokens, num_experts) = scores.exp(), scores.shape
    change, of_experts = 0.0, torch.ones(num_experts, device=scores.device)
    for _ in range(num_iters):
        of_tokens = 1 / (num_tokens * ((weights * of_experts).sum(1) + 1e-8))
        before, of_experts = of_experts, 1 / (num_experts * ((weights * of_tokens[:, None]).sum(0) + 1e-8))
        change = (before - of_experts).abs().mean()
    if tol is not None and float(change) >= tol:
        message = f"Experts are not balanced after {num_iters} iterations: the last change is {float(change):.2g}."
        raise NumericsError(message, hint="Pass more sinkhorn_iterations, or a larger sinkhorn_tol.", tol=tol)
    return weights * of_experts * of_tokens[:, None]


class RouterSinkhorn(RouterTopK):
    """A router that sends each token to one expert, and in training equally many tokens to all experts.

    Args:
        num_experts: number of experts.
        top_k: 1.
        hidden_size: size of a token.
        act_fn: "sigmoid" or "softmax", which makes affinities of scores.
        sinkhorn_iterations: iterations of Sinkhorn's algorithm in training; None: 30.
        sinkhorn_tol: an error if its last change is not smaller; None: none.
        **rest: as of `RouterTopK`.
    """

    def __init__(
        self,
        num_experts: int,
        top_k: int,
        hidden_size: int,
        act_fn: str = "sigmoid",
        sinkhorn_iterations: int | None = None,
        sinkhorn_tol: float | None = None,
        **rest: Any,
    ) -> None:
        if top_k != 1:
            hint = "Pass top_k=1, or use RouterTopK."
            raise NotSupportedError(f"RouterSinkhorn cannot choose {top_k} experts.", hint=hint, top_k=top_k)
        super().__init__(num_experts, top_k, hidden_size, act_fn=act_fn, **rest)
        self.sinkhorn_iterations = _ITERATIONS if sinkhorn_iterations is None else sinkhorn_iterations
        self.sinkhorn_tol = sinkhorn_tol

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return scores and affinities of all experts, and the chosen one, a row for each token.

        Args:
            hidden_states: tokens.
        """
        logits, affinities, _ = super().forward(hidden_states)
        scores = logits.detach().float()
        if self.training:
            scores = balanced(scores, self.sinkhorn_iterations, self.sinkhorn_tol)
        return logits, affinities, scores.argmax(1, keepdim=True)


class GroupLimitedRouter(RouterTopK):
    """The router of DeepSeek-V3: experts of the best groups only, chosen with a correction that affinities lack.

    Args:
        num_experts: number of experts.
        top_k: experts of a token.
        hidden_size: size of a token.
        n_group: number of groups of neighboring experts.
        topk_group: number of groups that a token may choose from, by the sum of their two largest scores.
        **rest: as of `RouterTopK`.
    """

    def __init__(
        self, num_experts: int, top_k: int, hidden_size: int, n_group: int, topk_group: int, **rest: Any
    ) -> None:
        super().__init__(num_experts, top_k, hidden_size, act_fn="sigmoid", **rest)
        if num_experts % n_group or not 0 < topk_group <= n_group or topk_group * (num_experts // n_group) < top_k:
            message = f"A token cannot choose {top_k} of {num_experts} experts in {topk_group} of {n_group} groups."
            hint = "Pass groups of equal size which have enough experts."
            raise ConfigError(message, hint=hint, n_group=n_group, topk_group=topk_group, num_experts=num_experts)
        self.n_group, self.topk_group = n_group, topk_group
        self.e_score_correction_bias = nn.Parameter(torch.zeros(num_experts), requires_grad=False)

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return scores and affinities of all experts, and the chosen ones, a row for each token.

        Args:
            hidden_states: tokens.
        """
        logits, affinities, _ = super().forward(hidden_states)
        corrected = logits.detach().float().sigmoid() + self.e_score_correction_bias
        groups = corrected.unflatten(1, (self.n_group, -1))
        best = groups.topk(min(2, groups.shape[-1]), -1).values.sum(-1).topk(self.topk_group, 1).indices
        may_choose = torch.zeros_like(groups[..., 0], dtype=torch.bool).scatter(1, best, True)
        chosen = groups.masked_fill(~may_choose[..., None], float("-inf")).flatten(1).topk(self.top_k, 1).indices
        return logits, affinities, chosen
