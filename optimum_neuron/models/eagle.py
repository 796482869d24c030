"""EAGLE-3 drafts: one decoder layer that reads the decoder's own hidden states and guesses the next token.

For each token it gets the token's embedding, and hidden states of three layers of the decoder behind the token before.
A projection makes one vector of these; after the newest token, the draft's own result stands in its place, so that a
chain of guesses needs no call of the decoder (Li et al. 2025). Names of tensors are those of published checkpoints.

Shape legend: T tokens, D hidden width of the draft, F the decoder's hidden width times 3.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ..base.transformers_types import PreTrainedConfig
from .common import (
    DecoderConfig,
    LayerKind,
    Norm,
    activation_gap,
    full_precision_linear,
    make_linear,
    make_norm,
    one_token,
    read_rotary,
    read_sizes,
    rotary_gap,
)
from .first_eagle import EagleLayer, FirstEagleNetwork

NUM_LAYERS_READ = 3
"""Layers of the decoder whose hidden states a draft reads."""

EAGLE_WEIGHT_MAP: dict[str, tuple[str, ...]] = {
    "embed.weight": ("embed_tokens.weight",),
    "fc.weight": ("fc.weight",),
    "embed_norm.weight": ("midlayer.input_layernorm.weight",),
    "hidden_norm.weight": ("midlayer.hidden_norm.weight",),
    "attention.qkv.weight": tuple(f"midlayer.self_attn.{name}_proj.weight" for name in "qkv"),
    "attention.out.weight": ("midlayer.self_attn.o_proj.weight",),
    "mlp_norm.weight": ("midlayer.post_attention_layernorm.weight",),
    "mlp.gate_up.weight": ("midlayer.mlp.gate_proj.weight", "midlayer.mlp.up_proj.weight"),
    "mlp.down.weight": ("midlayer.mlp.down_proj.weight",),
    "norm.weight": ("norm.weight",),
    "head.weight": ("lm_head.weight",),
}
"""Where each parameter comes from in published checkpoints."""


class EagleNetwork(EagleLayer):
    """The layer between the embedding and the head of an EAGLE-3 draft, with its own cache."""

    def __init__(
        self, sizes: DecoderConfig, *, target_width: int, num_draft_tokens: int, is_residual_normed: bool
    ) -> None:
        """Make the network, with uninitialized parameters.

        Args:
            sizes: sizes of the draft, see `eagle_sizes`.
            target_width: hidden width of the decoder.
            num_draft_tokens: tokens that the draft can guess.
            is_residual_normed: attention adds to the normalized hidden states.
        """
        super().__init__(sizes, num_draft_tokens=num_draft_tokens)
        width, self.is_residual_normed = self.width, is_residual_normed
        self.read_width = NUM_LAYERS_READ * target_width
        self.fc = nn.Linear(self.read_width, width, bias=False)
        self.embed_norm, self.hidden_norm, self.norm = (make_norm(width, sizes.norm) for _ in range(3))
        self.attention.qkv = make_linear(sizes, 2 * width, sum(self.attention.heads) * sizes.head_dim, bias=False)

    def project(self, hidden_1TF: torch.Tensor) -> torch.Tensor:
        """Make one vector of the decoder's hidden states."""
        return self.fc(hidden_1TF.to(self.fc.weight.dtype)).float()

    def forward(
        self,
        ids_1T: torch.Tensor,
        positions_1T: torch.Tensor,
        hidden_1TD: torch.Tensor,
        states: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        """Return the layer's result [1, T, D], which the head and the next guess read."""
        normed_1TD = self.hidden_norm(hidden_1TD)
        x_1TD = (normed_1TD if self.is_residual_normed else hidden_1TD).float()
        both_1TD = torch.cat((self.embed_norm(self.embed(ids_1T)), normed_1TD), -1)
        return self.layer(x_1TD, both_1TD, positions_1T, states)

    def guess(self, x_1TD: torch.Tensor) -> torch.Tensor:
        """Return the likeliest token [1, T], as the draft numbers tokens."""
        return full_precision_linear(self.norm(x_1TD), self.head).argmax(-1)


class EagleEntry(nn.Module):
    """How a graph calls the network: on tokens with hidden states of the decoder, or on a guess with its own."""

    def __init__(self, network: EagleNetwork | FirstEagleNetwork, *, reads_decoder: bool) -> None:
        super().__init__()
        self.network, self.reads_decoder = network, reads_decoder

    def forward(self, ids_1T, positions_1T, hidden_1TF, last_index_1, states):  # type: ignore[no-untyped-def]
        """Return the guess [1, 1] behind one of the tokens, and what the next guess reads [1, 1, D]."""
        hidden_1TD = self.network.project(hidden_1TF) if self.reads_decoder else hidden_1TF
        x_11D = one_token(self.network(ids_1T, positions_1T, hidden_1TD, states), last_index_1)
        return self.network.guess(x_11D), x_11D


def eagle_sizes(config: PreTrainedConfig) -> DecoderConfig:
    """Read the sizes of a draft from its transformers configuration."""
    norm, kind = Norm(eps=config.rms_norm_eps), LayerKind(rotary=read_rotary(config))
    return DecoderConfig(**read_sizes(config), layers=(kind,), norm=norm, activation=config.hidden_act)


def eagle_gap(config: PreTrainedConfig) -> str | None:
    """Say which option of a draft's configuration the network does not implement, or None."""
    if config.num_hidden_layers != 1:
        return f"num_hidden_layers={config.num_hidden_layers}"
    biases = [name for name in ("attention_bias", "mlp_bias") if getattr(config, name, False)]
    if biases:
        return f"{biases[0]}=True"
    return activation_gap("hidden_act", config.hidden_act) or rotary_gap(config)
