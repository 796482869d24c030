"""EAGLE drafts of the first generation: one decoder layer that reads what the decoder's head projects.

For each token, a projection makes one vector of the token's embedding and the decoder's normalized hidden state behind
the token before. The result stands in place of the hidden state of the next token, and the decoder's own head projects
it to a guess (Li et al. 2024, 2401.15077). Names of tensors are those of published checkpoints.

Shape legend: T tokens, D hidden width of the decoder and of the draft, C width that the attention reads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from .common import (
    Attention,
    AttentionView,
    DecoderConfig,
    GatedMLP,
    LayerState,
    full_precision_linear,
    make_norm,
    rotary_angles,
    visible_slots,
)

FIRST_EAGLE_WEIGHT_MAP: dict[str, tuple[str, ...]] = {
    "embed.weight": ("embed_tokens.weight",),
    "fc.weight": ("fc.weight",),
    "fc.bias": ("fc.bias",),
    "input_norm.weight": ("layers.0.input_layernorm.weight",),
    "attention.qkv.weight": tuple(f"layers.0.self_attn.{name}_proj.weight" for name in "qkv"),
    "attention.out.weight": ("layers.0.self_attn.o_proj.weight",),
    "mlp_norm.weight": ("layers.0.post_attention_layernorm.weight",),
    "mlp.gate_up.weight": ("layers.0.mlp.gate_proj.weight", "layers.0.mlp.up_proj.weight"),
    "mlp.down.weight": ("layers.0.mlp.down_proj.weight",),
    "decoder_norm.weight": ("decoder.norm.weight",),
    "decoder_norm.bias": ("decoder.norm.bias",),
    "head.weight": ("lm_head.weight",),
}
"""Where each parameter comes from in published checkpoints; those of "decoder." are the decoder's."""


class EagleLayer(nn.Module):
    """What drafts of both generations have: an embedding, one layer with its own cache, and a head."""

    def __init__(self, sizes: DecoderConfig, *, num_draft_tokens: int) -> None:
        """Make the layer, with uninitialized parameters.

        Args:
            sizes: sizes of the draft, see `eagle_sizes`.
            num_draft_tokens: tokens that the draft can guess.
        """
        super().__init__()
        self.width, (kind,), (self._rotary,) = sizes.hidden_size, sizes.layers, sizes.rotaries
        self.embed = nn.Embedding(sizes.vocab_size, self.width)
        self.attention, self.mlp = Attention(sizes, kind), GatedMLP(sizes)
        self.mlp_norm = make_norm(self.width, sizes.norm)
        self.head = nn.Linear(self.width, num_draft_tokens, bias=False)
        inv_freq = torch.tensor(self._rotary.inv_freq, device="cpu")
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    @property
    def state(self) -> LayerState:
        """Keys and values of its attention."""
        return self.attention.state

    def layer(
        self, x_1TD: torch.Tensor, read_1TC: torch.Tensor, positions_1T: torch.Tensor, states: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Return the layer's result [1, T, D].

        Args:
            x_1TD: hidden states, to which attention and feed-forward add, in float32.
            read_1TC: input of the attention.
            positions_1T: positions of the tokens.
            states: keys and values.
        """
        num_slots = states[0].shape[-1]
        view = AttentionView(
            positions_BT=positions_1T,
            angles=rotary_angles(positions_1T, self.inv_freq, self._rotary),
            mask=visible_slots(positions_1T, num_slots, None),
            num_slots=num_slots,
        )
        x_1TD = x_1TD + self.attention(read_1TC, view, *states).float()
        return x_1TD + self.mlp(self.mlp_norm(x_1TD)).float()


class FirstEagleNetwork(EagleLayer):
    """The layer between the embedding and the decoder's head, with its own cache."""

    def __init__(self, sizes: DecoderConfig, *, decoder_norm: nn.Module, has_bias: bool, has_input_norm: bool) -> None:
        """Make the network, with uninitialized parameters.

        Args:
            sizes: sizes of the draft, see `eagle_sizes`.
            decoder_norm: the decoder's last norm.
            has_bias: whether the projection of both inputs has a bias.
            has_input_norm: whether the attention reads normalized vectors.
        """
        super().__init__(sizes, num_draft_tokens=sizes.vocab_size)
        self.read_width = self.width
        self.decoder_norm = decoder_norm
        self.fc = nn.Linear(2 * self.width, self.width, bias=has_bias)
        self.input_norm = make_norm(self.width, sizes.norm) if has_input_norm else None

    def project(self, hidden_1TD: torch.Tensor) -> torch.Tensor:
        """Return what the decoder's head reads, of the result of its last layer."""
        return self.decoder_norm(hidden_1TD).float()

    def forward(
        self,
        ids_1T: torch.Tensor,
        positions_1T: torch.Tensor,
        hidden_1TD: torch.Tensor,
        states: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        """Return the layer's result [1, T, D], which the head and the next guess read."""
        embedded_1TD = self.embed(ids_1T)
        x_1TD = self.fc(torch.cat((embedded_1TD, hidden_1TD.to(embedded_1TD.dtype)), -1)).float()
        read_1TD = x_1TD.to(embedded_1TD.dtype) if self.input_norm is None else self.input_norm(x_1TD)
        return self.layer(x_1TD, read_1TD, positions_1T, states)

    def guess(self, x_1TD: torch.Tensor) -> torch.Tensor:
        """Return the likeliest token [1, T]."""
        return full_precision_linear(x_1TD.to(self.head.weight.dtype), self.head).argmax(-1)
