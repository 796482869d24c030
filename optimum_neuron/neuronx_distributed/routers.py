"""Routers of experts beyond `RouterTopK`, and experts that all tokens go through.

layer = MoE(RouterSinkhorn(8, 1, 64), experts, shared_experts=SharedExperts(64, 128, 1, "silu"))
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..errors import ConfigError, NotSupportedError, NumericsError, invalid_choice
from .experts import ACT2FN, RouterTopK
from .layers import ColumnParallelLinear, RowParallelLinear

_ITERATIONS = 30


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
    ) -> None:
        super().__init__()
        if hidden_act not in ACT2FN:
            raise invalid_choice("hidden_act", hidden_act, list(ACT2FN))
        rest: dict[str, Any] = {
            "bias": False,
            "dtype": dtype,
            "tensor_model_parallel_group": tensor_model_parallel_group,
            "sequence_parallel_enabled": sequence_parallel_enabled,
            "sequence_dimension": sequence_dimension,
        }
        width, self.activation = intermediate_size * num_shared_experts, ACT2FN[hidden_act]
        self.is_fused, self.sequence_parallel_enabled = fused_gate_up_projection, sequence_parallel_enabled
        if self.is_fused:
            self.gate_up_proj = ColumnParallelLinear(hidden_size, 2 * width, gather_output=False, stride=2, **rest)
        else:
            self.gate_proj = ColumnParallelLinear(hidden_size, width, gather_output=False, **rest)
            self.up_proj = ColumnParallelLinear(hidden_size, width, gather_output=False, **rest)
        self.down_proj = RowParallelLinear(width, hidden_size, input_is_parallel=True, **rest)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return the results.

        Args:
            hidden_states: tokens.
        """
        if self.is_fused:
            gate, up = self.gate_up_proj(hidden_states).chunk(2, -1)
        else:
            gate, up = self.gate_proj(hidden_states), self.up_proj(hidden_states)
        output: torch.Tensor = self.down_proj(self.activation(gate) * up)
        return output
