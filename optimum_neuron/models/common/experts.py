"""Mixtures of experts with static shapes: a router picks experts for each token, and their results are summed.

A decode step has few tokens: it copies the weights of the experts that these chose, and reads no others. A prompt has
many: every expert runs on all of its tokens in one batched product that reads each weight once, and what the router
did not choose counts as zero. Sorting tokens by expert would make shapes follow the routing. The product that goes down
sums over experts too, so that no core holds results of every expert. Host code runs chosen experts only
(`compiler/lower/experts.py`, which looks for the operators of `_sum_of_experts`). Weights may be quantized, with
outputs before inputs whatever `is_transposed` says of plain ones.

Sources: Shazeer et al. 2017, section 2; Jiang et al. 2024 (Mixtral), section 2.1; DeepSeek-V3, section 2.1.2.

Shape legend: E experts, N tokens, K experts of a token, G groups of experts, D hidden, F width of an expert.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from ...compiler import PICK_EXPERTS, QUANTIZED_EXPERTS, QUANTIZED_EXPERTS_SUM
from .config import DecoderConfig
from .layers import GatedMLP, TokenModule
from .quantized import expert_parts


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixtureConfig:
    """Sizes and routing of a mixture of experts."""

    num_experts: int
    """Experts to choose from."""
    experts_per_token: int
    """Experts that each token chooses."""
    intermediate_size: int
    """Width of one expert."""
    score: Literal["softmax", "sigmoid"] = "softmax"
    """How the router's logits become weights."""
    is_normalized: bool = False
    """The weights of a token's experts sum to one."""
    scale: float = 1.0
    """Factor on the weights."""
    num_groups: int = 1
    """Experts are in so many groups of equal size."""
    groups_per_token: int = 1
    """A token chooses experts of so many groups only."""
    router_bias: bool = False
    """Bias on the router's logits."""
    correction_bias: bool = False
    """Bias on the scores that choose experts, but not on their weights (DeepSeek-V3, section 2.1.2)."""
    weighs_input: bool = False
    """A weight multiplies what goes into its expert, not what comes out (Llama 4)."""
    bias: bool = False
    """Bias on the experts' projections."""
    is_transposed: bool = False
    """Weights have their inputs before their outputs, [E, D, F]."""
    is_interleaved: bool = False
    """Gate and up projections alternate; otherwise all of the gate's come first."""
    activation_limit: float | None = None
    """Bound of the gate from above and of the up projection from both sides, which then has 1 added (gpt-oss)."""
    activation_alpha: float = 1.0
    """Factor of the gate within the sigmoid."""
    shared_size: int = 0
    """Width of the expert that every token takes; 0 for none."""
    shared_gate: bool = False
    """A sigmoid of the token weighs the shared expert (Qwen2 MoE)."""

    def __post_init__(self) -> None:
        assert self.num_experts % self.num_groups == 0, "groups of experts have equal sizes"
        assert not (self.weighs_input and self.bias), "a bias must not be weighed"


class Router(nn.Module):
    """Chooses experts and their weights for each token, in float32."""

    correction: torch.Tensor | None

    def __init__(self, hidden_size: int, config: MixtureConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.num_experts, hidden_size))
        self.bias = nn.Parameter(torch.zeros(config.num_experts)) if config.router_bias else None
        # A buffer stays in float32: bfloat16 would round the differences that balance the experts.
        correction = torch.zeros(config.num_experts) if config.correction_bias else None
        self.register_buffer("correction", correction)

    def forward(self, x_ND: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the experts of each token and their weights, both [N, K]."""
        config = self.config
        bias = None if self.bias is None else self.bias.float()
        logits_NE = F.linear(x_ND.float(), self.weight.float(), bias)
        scores_NE = logits_NE.softmax(-1) if config.score == "softmax" else logits_NE.sigmoid()
        order_NE = scores_NE if self.correction is None else scores_NE + self.correction
        if config.num_groups > 1:
            order_NE = self._best_groups(order_NE)
        index_NK = order_NE.topk(config.experts_per_token, -1).indices
        weight_NK = scores_NE.gather(-1, index_NK)
        if config.is_normalized:
            weight_NK = weight_NK / (weight_NK.sum(-1, keepdim=True) + 1e-20)
        return index_NK, weight_NK * config.scale

    def _best_groups(self, order_NE: torch.Tensor) -> torch.Tensor:
        """Exclude experts of all groups but those with the largest sums of their two best scores."""
        config = self.config
        order_NGE = order_NE.unflatten(-1, (config.num_groups, -1))
        best_NG = order_NGE.topk(2, -1).values.sum(-1)
        chosen = best_NG.topk(config.groups_per_token, -1).indices
        is_chosen_NG = (chosen[..., None] == torch.arange(config.num_groups)).any(-2)
        return order_NGE.masked_fill(~is_chosen_NG[..., None], float("-inf")).flatten(-2)


class Experts(nn.Module):
    """Gated feed-forwards whose weights lie in three dimensions; attributes are named as transformers names them."""

    has_gate = True
    has_post_expert_norm = False

    def __init__(self, hidden_size: int, config: MixtureConfig) -> None:
        super().__init__()
        self.config = config
        self.num_experts = config.num_experts
        self.has_bias, self.is_transposed = config.bias, config.is_transposed
        self.is_concatenated = not config.is_interleaved
        wide, narrow = (2 * config.intermediate_size, hidden_size), (hidden_size, config.intermediate_size)
        if config.is_transposed:
            wide, narrow = wide[::-1], narrow[::-1]
        # Without memory: a layer of DeepSeek-V3 has 45 GB in float32.
        self.gate_up_proj = nn.Parameter(torch.empty(config.num_experts, *wide, device="meta"))
        self.down_proj = nn.Parameter(torch.empty(config.num_experts, *narrow, device="meta"))
        if config.bias:
            self.gate_up_proj_bias = nn.Parameter(torch.zeros(config.num_experts, 2 * config.intermediate_size))
            self.down_proj_bias = nn.Parameter(torch.zeros(config.num_experts, hidden_size))

    def forward(self, x_ND: torch.Tensor, index_NK: torch.Tensor, weight_NK: torch.Tensor) -> torch.Tensor:
        """Return the weighted sum of each token's experts, [N, D]."""
        return run_experts(self, x_ND, index_NK, weight_NK, weighs_input=self.config.weighs_input)

    def _apply_gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Gate and up projection [..., 2 F] to what goes down [..., F], in float32."""
        config = self.config
        gate, up = (gate_up[..., ::2], gate_up[..., 1::2]) if config.is_interleaved else gate_up.chunk(2, -1)
        if config.activation_limit is not None:
            limit = config.activation_limit
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit) + 1
        return gate * torch.sigmoid(gate * config.activation_alpha) * up


def run_experts(
    experts: nn.Module,
    x_ND: torch.Tensor,
    index_NK: torch.Tensor,
    weight_NK: torch.Tensor,
    *,
    weighs_input: bool = False,
) -> torch.Tensor:
    """Run a module of experts, such as `Experts` or one of transformers, and sum what each token's experts return.

    Args:
        experts: has the attributes of `Experts`.
        index_NK: experts of each token; a number that is no expert counts as zero, as on a core that has others.
        weighs_input: weigh what goes into an expert, which has no bias, rather than what comes out.

    Returns:
        Sums [N, D] in the dtype of the tokens.
    """
    if index_NK.numel() < experts.num_experts:
        # Pairs of token and expert stand where experts do.
        index, weight = index_NK.flatten(), weight_NK.reshape(-1, 1, 1)
        is_here = (index >= 0) & (index < experts.num_experts)
        weight = torch.where(is_here[:, None, None], weight, 0.0)
        x = x_ND.repeat_interleave(index_NK.shape[-1], 0)[:, None]
        out = _feed(experts, x, weight, index.clamp(0, experts.num_experts - 1), weighs_input=weighs_input)
        return out.view(*index_NK.shape, -1).sum(1).to(x_ND.dtype)
    is_chosen_ENK = index_NK == torch.arange(experts.num_experts)[:, None, None]
    weight_EN1 = (is_chosen_ENK * weight_NK).sum(-1, keepdim=True)
    # An expert that was not chosen may overflow, and zero times infinity is not zero.
    is_chosen_EN1 = is_chosen_ENK.any(-1, keepdim=True)
    if experts.has_post_expert_norm:
        out_END = _feed(experts, x_ND, weight_EN1, None, weighs_input=weighs_input)
        return torch.where(is_chosen_EN1, out_END, 0.0).sum(0).to(x_ND.dtype)
    hidden_ENF = _widen(experts, x_ND, weight_EN1 if weighs_input else None, None)
    hidden_ENF = torch.where(is_chosen_EN1, hidden_ENF if weighs_input else hidden_ENF * weight_EN1, 0.0)
    return _sum_of_experts(experts, hidden_ENF.to(x_ND.dtype), weight_EN1)


def _sum_of_experts(experts: nn.Module, hidden_ENF: torch.Tensor, weight_EN1: torch.Tensor) -> torch.Tensor:
    """Project what experts have weighted, and sum over experts and width in one product: [N, D]."""
    if (parts := expert_parts(experts, "down_proj")) is not None:
        return _with_bias(experts, QUANTIZED_EXPERTS_SUM(hidden_ENF, *parts), weight_EN1)
    down_EFD = experts.down_proj if experts.is_transposed else experts.down_proj.transpose(1, 2)
    return _with_bias(experts, torch.tensordot(hidden_ENF, down_EFD, dims=([0, 2], [0, 1])), weight_EN1)


def _with_bias(experts: nn.Module, out_ND: torch.Tensor, weight_EN1: torch.Tensor) -> torch.Tensor:
    if not experts.has_bias:
        return out_ND
    bias_ND = weight_EN1.squeeze(-1).t() @ experts.down_proj_bias.float()
    return (out_ND.float() + bias_ND).to(out_ND.dtype)


def _feed(
    experts: nn.Module, x: torch.Tensor, weight: torch.Tensor, index: torch.Tensor | None, *, weighs_input: bool
) -> torch.Tensor:
    """Weighted results of the experts `index`, or of all where that is None; before any sum."""
    wide = _widen(experts, x, weight if weighs_input else None, index).to(x.dtype)
    out = _linear(experts, "down_proj", wide, index)
    if experts.has_post_expert_norm:
        out = experts.post_expert_norm(out)
    return out if weighs_input else out * weight


def _widen(
    experts: nn.Module, x: torch.Tensor, weight: torch.Tensor | None, index: torch.Tensor | None
) -> torch.Tensor:
    """What goes down, in float32; the projection may be weighted before the gate."""
    wide = _linear(experts, "gate_up_proj" if experts.has_gate else "up_proj", x, index).float()
    wide = wide if weight is None else wide * weight
    return experts._apply_gate(wide) if experts.has_gate else experts.act_fn(wide)


def _linear(experts: nn.Module, name: str, x: torch.Tensor, index: torch.Tensor | None) -> torch.Tensor:
    """Projections of tokens [N, D] by every expert, or of each expert's own [E, N, D]."""
    bias = getattr(experts, f"{name}_bias") if experts.has_bias else None
    bias = bias if bias is None or index is None else bias[index]
    if (parts := expert_parts(experts, name)) is not None:
        values, *others = parts
        if index is not None:
            values, others = PICK_EXPERTS(values, index), [None if part is None else part[index] for part in others]
        out = QUANTIZED_EXPERTS(x, values, *others)
    else:
        weight = getattr(experts, name) if index is None else getattr(experts, name)[index]
        out = torch.matmul(x, weight if experts.is_transposed else weight.transpose(1, 2))
    return out if bias is None else out + bias[:, None]


class Mixture(TokenModule):
    """Routed experts, and one that every token takes."""

    def __init__(self, sizes: DecoderConfig, config: MixtureConfig) -> None:
        super().__init__()
        self.router = Router(sizes.hidden_size, config)
        self.experts = Experts(sizes.hidden_size, config)
        shared_sizes = dataclasses.replace(sizes, intermediate_size=config.shared_size)
        self.shared = GatedMLP(shared_sizes) if config.shared_size else None
        self.shared_gate = nn.Linear(sizes.hidden_size, 1, bias=False) if config.shared_gate else None

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Return float32, as the residual stream is."""
        out_ND = self.experts(x_BTD.flatten(0, 1), *self.router(x_BTD.flatten(0, 1)))
        out_BTD = out_ND.view(x_BTD.shape[0], -1, x_BTD.shape[2]).float()
        if self.shared is None:
            return out_BTD
        shared_BTD = self.shared(x_BTD).float()
        if self.shared_gate is not None:
            gate_BT1 = F.linear(x_BTD.float(), self.shared_gate.weight.float()).sigmoid()
            shared_BTD = shared_BTD * self.own_tokens(gate_BT1)
        return out_BTD + shared_BTD
