"""A decoder built from the shared blocks: embedding, blocks, head.

It takes token ids and positions, and a flat list of cache tensors that it writes in place. A row's tokens
occupy the cache slots that equal their positions, so a query sees exactly the slots up to its own position
and no padding mask is needed.

Shape legend: B batch, T new tokens, S cache slots, D hidden, H head width, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .config import DecoderConfig
from .layers import Attention, AttentionView, GatedMLP, RMSNorm


class Head(nn.Linear):
    """Final norm and vocabulary projection, with logits in float32 as TensorE accumulates them.

    Rounding logits to bfloat16 makes ties between close tokens, which changes the argmax for 1 token in 100.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config.hidden_size, config.vocab_size, bias=False)
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Return float32 logits [B, T, V]."""
        return full_precision_linear(self.norm(x_BTD), self)


def full_precision_linear(x_BTD: torch.Tensor, linear: nn.Linear) -> torch.Tensor:
    """Operands as stored, result in float32."""
    bias = None if linear.bias is None else linear.bias.float()
    return F.linear(x_BTD.float(), linear.weight.float(), bias)


class Block(nn.Module):
    """Pre-norm attention and feed-forward on a float32 residual stream."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.attention = Attention(config)
        self.mlp_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = GatedMLP(config)

    def forward(self, x_BTD, view: AttentionView, key_cache, value_cache):  # type: ignore[no-untyped-def]
        attended = self.attention(self.attention_norm(x_BTD), view, key_cache, value_cache)
        x_BTD = x_BTD + attended.float()
        return x_BTD + self.mlp(self.mlp_norm(x_BTD)).float()


class Decoder(nn.Module):
    """Token ids and positions to logits, with a cache written in place."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.head = Head(config)
        if config.tie_embeddings:
            self.head.weight = self.embed.weight
        # A buffer of the graph, not of the checkpoint; built on the CPU even where parameters are on meta.
        self.register_buffer("inv_freq", torch.tensor(config.inv_freq, device="cpu"), persistent=False)

    @property
    def cuts(self) -> tuple[str, ...]:
        """Modules that graphs of different lengths share."""
        return ("head",)

    def forward(
        self,
        input_ids_BT: torch.Tensor,
        positions_BT: torch.Tensor,
        states: list[torch.Tensor],
        *,
        num_slots: int | None,
        last_index_B: torch.Tensor | None = None,
        embeds_BTD: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return logits [B, T, V], or [B, 1, V] at `last_index_B`.

        Args:
            input_ids_BT: token ids.
            positions_BT: position of each token, which is also its cache slot.
            states: key cache [B, K, H, S] and value cache [B, K, S, H] of each layer, alternating.
            num_slots: how many slots of the cache to attend to; None for a prompt that starts at 0, whose tokens
                attend to each other.
            last_index_B: which token of each row to return logits for.
            embeds_BTD: what stands for the tokens, such as parts of images; None: their embeddings.
        """
        angles = positions_BT[:, None, :, None].float() * self.inv_freq
        half_cos, half_sin = angles.cos() * self.config.rope_scale, angles.sin() * self.config.rope_scale
        cos, sin = torch.cat((half_cos, half_cos), -1), torch.cat((-half_sin, half_sin), -1)
        num_keys = input_ids_BT.shape[1] if num_slots is None else num_slots
        window = self.config.sliding_window
        mask = visible_slots(positions_BT, num_keys, window) if num_slots is not None or window else None
        view = AttentionView(positions_BT=positions_BT, cos=cos, sin=sin, mask=mask, num_slots=num_slots)
        x_BTD = (self.embed(input_ids_BT) if embeds_BTD is None else embeds_BTD).float()
        for layer, key_cache, value_cache in zip(self.layers, states[::2], states[1::2], strict=True):
            x_BTD = layer(x_BTD, view, key_cache, value_cache)
        return self.head(x_BTD if last_index_B is None else one_token(x_BTD, last_index_B))


def one_token(x_BTD: torch.Tensor, index_B: torch.Tensor) -> torch.Tensor:
    """Return the token [B, 1, D] of each row at `index_B`."""
    return x_BTD.gather(1, index_B[:, None, None].expand(-1, 1, x_BTD.shape[-1]))


def visible_slots(positions_BT: torch.Tensor, num_keys: int, window: int | None) -> torch.Tensor:
    """Which slots each query sees, of the last `window` if that is a number: boolean [B, 1, T, num_keys]."""
    slots, queries = torch.arange(num_keys), positions_BT[:, None, :, None]
    mask = slots <= queries
    return mask & (slots > queries - window) if window else mask
