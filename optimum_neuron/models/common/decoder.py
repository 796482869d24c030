"""A decoder built from the shared blocks: embedding, blocks, head.

It takes token ids and positions, and a flat list of cache tensors that it writes in place. A row's tokens
occupy the cache slots that equal their positions, so a query sees exactly the slots up to its own position
and no padding mask is needed. Layers with a window or with chunks keep their newest tokens only (`rings.py`).

Shape legend: B batch, T new tokens, S cache slots, D hidden, H head width, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from .alibi import Alibi
from .attention import Attention, AttentionView, visible_slots
from .config import DecoderConfig, LayerKind
from .feed_forward import make_feed_forward
from .linear import capped
from .norms import make_norm
from .rings import Ring
from .rotary import rotary_angles
from .states import LayerState, seen_within

MakeModule = Callable[[DecoderConfig, int], nn.Module]
"""Makes the attention or the feed-forward of a layer, given its number."""


class Head(nn.Linear):
    """Final norm and vocabulary projection, with logits in float32 as TensorE accumulates them.

    Rounding logits to bfloat16 makes ties between close tokens, which changes the argmax for 1 token in 100.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config.hidden_size, config.vocab_size, bias=config.has_head_bias)
        self.scale, self.cap = config.logits_scale, config.logits_cap
        self.norm = make_norm(config.hidden_size, config.norm)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Return float32 logits [B, T, V]."""
        logits = full_precision_linear(self.norm(x_BTD), self)
        return capped(logits if self.scale == 1.0 else logits * self.scale, self.cap)


def full_precision_linear(x_BTD: torch.Tensor, linear: nn.Linear) -> torch.Tensor:
    """Operands as stored, result in float32."""
    bias = None if linear.bias is None else linear.bias.float()
    return F.linear(x_BTD.float(), linear.weight.float(), bias)


class Block(nn.Module):
    """Attention and feed-forward on a float32 residual stream."""

    def __init__(self, config: DecoderConfig, attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.is_parallel, self.residual_scale = config.is_parallel, config.residual_scale
        before, after = config.norms != "after", config.norms != "before"

        def norm(is_there: bool) -> nn.Module | None:
            return make_norm(config.hidden_size, config.norm) if is_there else None

        self.shared_norm = norm(config.has_shared_norm)
        self.attention_norm = norm(before and not config.has_shared_norm)
        self.attention = attention
        self.attention_result_norm = norm(after)
        self.mlp_norm = norm(before and not config.has_shared_norm)
        self.mlp = mlp
        self.mlp_result_norm = norm(after)

    def forward(self, x_BTD, view: AttentionView, key_cache, value_cache):  # type: ignore[no-untyped-def]
        shared = None if self.shared_norm is None else self.shared_norm(x_BTD)
        given = self._given(self.attention_norm, x_BTD) if shared is None else shared
        attended = self._joining(self.attention_result_norm, self.attention(given, view, key_cache, value_cache))
        if self.is_parallel:
            given = self._given(self.mlp_norm, x_BTD) if shared is None else shared
            return x_BTD + attended + self._joining(self.mlp_result_norm, self.mlp(given))
        x_BTD = x_BTD + attended
        return x_BTD + self._joining(self.mlp_result_norm, self.mlp(self._given(self.mlp_norm, x_BTD)))

    def _given(self, norm: nn.Module | None, x_BTD: torch.Tensor) -> torch.Tensor:
        """What attention or feed-forward gets, in the weights' dtype."""
        return x_BTD.to(self.attention.qkv.weight.dtype) if norm is None else norm(x_BTD)

    def _joining(self, norm: nn.Module | None, x_BTD: torch.Tensor) -> torch.Tensor:
        """What joins the residual stream of a result."""
        x_BTD = (x_BTD if norm is None else norm(x_BTD)).float()
        return x_BTD if self.residual_scale == 1.0 else x_BTD * self.residual_scale


class Embedding(nn.Embedding):
    """Embeddings of tokens, with their factor."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config.vocab_size, config.hidden_size)
        self.scale = config.embed_scale

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        x_BTD = super().forward(ids_BT)
        return x_BTD if self.scale == 1.0 else x_BTD.float() * self.scale


class Decoder(nn.Module):
    """Token ids and positions to logits, with a cache written in place."""

    def __init__(
        self,
        config: DecoderConfig,
        *,
        attention: MakeModule = lambda config, layer: Attention(config, config.layers[layer]),
        feed_forward: MakeModule = make_feed_forward,
    ) -> None:
        """Make a decoder; a family with other attention, or with experts, has them in place of the shared blocks."""
        super().__init__()
        self.config = config
        self.embed = Embedding(config)
        if config.num_positions:
            self.position_embed = nn.Embedding(config.num_positions, config.hidden_size)
        if config.alibi_slopes:
            self.alibi = Alibi(config.alibi_slopes)
        if config.embed_norm is not None:
            self.embed_norm = make_norm(config.hidden_size, config.embed_norm)
        self.layers = nn.ModuleList(
            Block(config, attention(config, layer), feed_forward(config, layer)) for layer in range(len(config.layers))
        )
        self.head = Head(config)
        if config.tie_embeddings:
            self.head.weight = self.embed.weight
        for number, rotary in enumerate(config.rotaries):
            # Buffers of the graph, not of the checkpoint; built on the CPU even where parameters are on meta.
            self.register_buffer(f"inv_freq_{number}", torch.tensor(rotary.inv_freq, device="cpu"), persistent=False)

    @property
    def cuts(self) -> tuple[str, ...]:
        """Modules that graphs of different lengths share."""
        return ("head",)

    @property
    def states(self) -> tuple[LayerState, ...]:
        """What each layer caches for each token, on one core."""
        kinds = self.config.layers[: len(self.layers)]
        return tuple(
            seen_within(layer.attention.state, kind.reach) for layer, kind in zip(self.layers, kinds, strict=True)
        )

    def limit(self, num_tokens: int) -> None:
        """Leave out windows and chunks that sequences of so many tokens do not fill."""
        kinds = tuple(kind.within(num_tokens) for kind in self.config.layers)
        self.config = dataclasses.replace(self.config, layers=kinds)

    def forward(
        self,
        input_ids_BT: torch.Tensor,
        positions_BT: torch.Tensor,
        states: list[torch.Tensor],
        *,
        num_slots: int | None,
        last_index_B: torch.Tensor | None = None,
        embeds_BTD: torch.Tensor | None = None,
        num_new_B: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return logits [B, T, V], or [B, 1, V] at `last_index_B`.

        Args:
            input_ids_BT: token ids.
            positions_BT: position of each token.
            states: key cache [B, K, H, S] and value cache [B, K, S, H] of each layer, alternating.
            num_slots: how many slots of the cache to attend to; None for a prompt that starts at 0, whose tokens
                attend to each other.
            last_index_B: which token of each row to return logits for.
            embeds_BTD: what stands for the tokens, such as parts of images; None: their embeddings.
            num_new_B: number of real tokens in each row, which come first; needed where layers have a window.
        """
        # A capture cuts the layers and their caches to what repeats, but not the configuration.
        kinds = self.config.layers[: len(self.layers)]
        ring = None if num_new_B is None else Ring(positions_BT=positions_BT, num_new_B=num_new_B)
        num_kept = {kind: key_cache.shape[3] for kind, key_cache in zip(kinds, states[::2], strict=True)}
        views = self._views(positions_BT, num_slots, ring, num_kept)
        x_BTD = self._start((self.embed(input_ids_BT) if embeds_BTD is None else embeds_BTD).float(), positions_BT)
        caches = zip(states[::2], states[1::2], strict=True)
        for layer, kind, (key_cache, value_cache) in zip(self.layers, kinds, caches, strict=True):
            x_BTD = layer(x_BTD, views[kind], key_cache, value_cache)
        return self.head(x_BTD if last_index_B is None else one_token(x_BTD, last_index_B))

    def _start(self, x_BTD: torch.Tensor, positions_BT: torch.Tensor) -> torch.Tensor:
        """What the first layer gets, of embeddings in float32."""
        if self.config.num_positions:
            x_BTD = x_BTD + self.position_embed(positions_BT + self.config.position_offset).float()
        if self.config.embed_norm is not None:
            x_BTD = self.embed_norm(x_BTD).float()
        return x_BTD if self.config.input_scale == 1.0 else x_BTD * self.config.input_scale

    def _views(
        self, positions_BT: torch.Tensor, num_slots: int | None, ring: Ring | None, num_kept: dict[LayerKind, int]
    ) -> dict[LayerKind, AttentionView]:
        """What the layers of each kind share, which keep so many slots; equal rotations and masks are made once."""
        angles = {
            rotary: rotary_angles(positions_BT, getattr(self, f"inv_freq_{number}"), rotary)
            for number, rotary in enumerate(self.config.rotaries)
        }
        num_kept_of = {(kind.window, kind.chunk): num for kind, num in num_kept.items()}
        masks = {seen: self._mask(positions_BT, num_slots, ring, num, *seen) for seen, num in num_kept_of.items()}
        return {
            kind: AttentionView(
                positions_BT=positions_BT,
                angles=None if kind.rotary is None else angles[kind.rotary],
                mask=masks[kind.window, kind.chunk],
                num_slots=num_slots,
                ring=None if kind.reach is None else ring,
            )
            for kind in num_kept
        }

    def _mask(
        self,
        positions_BT: torch.Tensor,
        num_slots: int | None,
        ring: Ring | None,
        num_kept: int,
        window: int | None,
        chunk: int | None,
    ) -> torch.Tensor | None:
        """What layers see that keep so many slots, or what is added to their scores; see `AttentionView.mask`."""
        has_alibi, is_limited = bool(self.config.alibi_slopes), bool(window or chunk)
        if num_slots is not None and is_limited:
            assert ring is not None and not has_alibi, "a layer with a window counts tokens, and slots have no order"
            return ring.visible(num_kept, num_slots, window, chunk)
        if num_slots is None and not (is_limited or has_alibi or self.config.score_cap is not None):
            return None
        mask = visible_slots(positions_BT, positions_BT.shape[1] if num_slots is None else num_slots, window, chunk)
        return self.alibi(mask, positions_BT) if has_alibi else mask


def one_token(x_BTD: torch.Tensor, index_B: torch.Tensor) -> torch.Tensor:
    """Return the token [B, 1, D] of each row at `index_B`."""
    return x_BTD.gather(1, index_B[:, None, None].expand(-1, 1, x_BTD.shape[-1]))
