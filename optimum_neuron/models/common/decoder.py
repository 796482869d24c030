"""A decoder built from the shared blocks: embedding, blocks, head.

It takes token ids and positions, and a flat list of cache tensors that it writes in place. A row's tokens
occupy the cache slots that equal their positions, so a query sees exactly the slots up to its own position
and no padding mask is needed. Layers with a window or with chunks keep their newest tokens only (`rings.py`).

Shape legend: B batch, T new tokens, S cache slots, D hidden, H head width, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from ...base.core import KVCacheDtype
from .alibi import Alibi
from .attention import Attention, AttentionView
from .blocks import place_tokens
from .cache_dtypes import stored_as
from .config import DecoderConfig, LayerKind
from .layers import TokenModule, capped, layer_kinds, make_feed_forward, make_norm, rotary_angles
from .prompt import Prompt, axis_positions
from .quantized import embedded, is_quantized, operand_dtype, quantized_product
from .rings import Ring
from .states import POSITION_OFFSET, LayerState, seen_within, visible_slots

MakeModule = Callable[[DecoderConfig, int], nn.Module]
"""Makes the attention of a layer, or what stands in its place, or the feed-forward, given the layer's number."""


class Head(nn.Linear):
    """Final norm and vocabulary projection, with logits in float32 as TensorE accumulates them.

    Rounding logits to bfloat16 makes ties between close tokens, which changes the argmax for 1 token in 100.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config.hidden_size, config.vocab_size, bias=config.has_head_bias)
        self.scale, self.cap = config.logits_scale, config.logits_cap
        self.norm = make_norm(config.hidden_size, config.norm)
        self.returns_hidden_states = False
        """Whether draft heads read the hidden states that the projection reads."""

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Return float32 logits [B, T, V], and with `returns_hidden_states` what they are projected from."""
        hidden_BTD = self.norm(x_BTD)
        logits = full_precision_linear(hidden_BTD, self)
        logits = capped(logits if self.scale == 1.0 else logits * self.scale, self.cap)
        return (logits, hidden_BTD.float()) if self.returns_hidden_states else logits


def as_tuple(results: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Return what a head returns as a tuple."""
    return results if isinstance(results, tuple) else (results,)


def full_precision_linear(x_BTD: torch.Tensor, linear: nn.Linear) -> torch.Tensor:
    """Operands as stored, result in float32."""
    if is_quantized(linear):
        return quantized_product(x_BTD.float(), linear)
    bias = None if linear.bias is None else linear.bias.float()
    return F.linear(x_BTD.float(), linear.weight.float(), bias)


class Block(TokenModule):
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

    def forward(self, x_BTD, view: AttentionView, *states):  # type: ignore[no-untyped-def]
        shared = None if self.shared_norm is None else self.all_tokens(self.shared_norm(x_BTD))
        given = self._given(self.attention_norm, x_BTD) if shared is None else shared
        attended = self._joining(self.attention_result_norm, self.attention(given, view, *states))
        if self.is_parallel:
            given = self._given(self.mlp_norm, x_BTD) if shared is None else shared
            return x_BTD + attended + self._joining(self.mlp_result_norm, self.mlp(given))
        x_BTD = x_BTD + attended
        return x_BTD + self._joining(self.mlp_result_norm, self.mlp(self._given(self.mlp_norm, x_BTD)))

    def _given(self, norm: nn.Module | None, x_BTD: torch.Tensor) -> torch.Tensor:
        """What attention or feed-forward gets, in the weights' dtype."""
        x_BTD = x_BTD.to(operand_dtype(self.attention.qkv)) if norm is None else norm(x_BTD)
        return self.all_tokens(x_BTD)

    def _joining(self, norm: nn.Module | None, x_BTD: torch.Tensor) -> torch.Tensor:
        """What joins the residual stream of a result."""
        x_BTD = (x_BTD if norm is None else norm(x_BTD)).float()
        return x_BTD if self.residual_scale == 1.0 else x_BTD * self.residual_scale


class Embedding(nn.Embedding):
    """Embeddings of tokens, with their factor."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config.vocab_size, config.hidden_size)
        self.scale = config.embed_scale
        if self.scale != 1.0:
            # Behind the sum over cores, which moves embeddings in the dtype of the table.
            self.register_forward_hook(lambda module, inputs, x_BTD: x_BTD.float() * module.scale)

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        return embedded(self, ids_BT)


class Decoder(TokenModule):
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
        self.axes: tuple[int, ...] = ()
        """Axis of positions of each rotary frequency, where images have several; else a position is a slot."""
        self.is_paged = False
        """Whether the cache is divided into blocks, in which every token has a slot, also of layers with a window."""
        self.kv_cache_dtype: KVCacheDtype = "auto"
        """What keys and values are stored in."""
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
        """What each layer keeps between calls, on one core; the first also where the next token is."""
        kinds = self.config.layers[: len(self.layers)]
        first, *others = (
            seen_within(self._stored(layer), None if self.is_paged else kind.reach)
            for layer, kind in zip(self.layers, kinds, strict=True)
        )
        return (first + (POSITION_OFFSET,) * bool(self.axes), *others)

    @property
    def kinds(self) -> tuple[int, ...] | None:
        """For each layer the first one that is equal to it; None if the layers cannot be compared."""
        return layer_kinds(self.layers, self.config.layers)

    def _stored(self, layer: nn.Module) -> LayerState:
        return stored_as(layer.attention.state, self.kv_cache_dtype)

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
        adds_all: bool = False,
        prompt: Prompt | None = None,
        num_new_B: torch.Tensor | None = None,
        table_BM: torch.Tensor | None = None,
        rows_B: torch.Tensor | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Return logits [B, T, V], or [B, 1, V] at `last_index_B`.

        Args:
            states: those of `states`, layer by layer.
            num_slots: how many slots of the cache to attend to; None for a prompt that starts at 0, whose tokens
                attend to each other.
            last_index_B: which token of each row to return logits for.
            adds_all: return the results for all tokens too, behind those for `last_index_B`.
            prompt: what a prompt has beside its tokens, such as features of images.
            num_new_B: number of real tokens in each row, which come first; needed where a token has no slot of its
                own: in layers with a window, and in states that tokens change.
            table_BM: blocks of each row's slots, where the cache is divided into blocks.
            rows_B: rows of the states without slots that the rows continue; None for all, in order.
        """
        places = positions_BT
        if self.axes:
            # Behind the tensors of the first layer.
            place = len(self._stored(self.layers[0]))
            offset_B1, states = states[place], [*states[:place], *states[place + 1 :]]
            places = axis_positions(positions_BT, offset_B1, prompt)
            places = places if prompt is None else places[..., list(self.axes)]
        # A capture cuts the layers and their states to what repeats, but not the configuration.
        kinds, rest = self.config.layers[: len(self.layers)], iter(states)
        own = [tuple(itertools.islice(rest, len(self._stored(layer)))) for layer in self.layers]
        views = self._views(positions_BT, places, num_slots, prompt, num_new_B, self._num_kept(own), table_BM, rows_B)
        embeds_BTD = self.embed(input_ids_BT) if prompt is None else prompt.embeds_BTD
        x_BTD = self.own_tokens(self._start(embeds_BTD.float(), positions_BT))
        added = iter(() if prompt is None else prompt.added)
        for layer, kind, tensors in zip(self.layers, kinds, own, strict=True):
            x_BTD = layer(x_BTD, views[kind], *tensors)
            if (features_BTD := next(added, None)) is not None:
                x_BTD = x_BTD + self.own_tokens(features_BTD)
        x_BTD = self.all_tokens(x_BTD)
        if last_index_B is None:
            return self.head(x_BTD)
        results = self.head(one_token(x_BTD, last_index_B))
        return (*as_tuple(results), *as_tuple(self.head(x_BTD))) if adds_all else results

    def _num_kept(self, states: list[tuple[torch.Tensor, ...]]) -> dict[LayerKind, int]:
        """Slots of the layers of each kind; 0 for a kind of layers without slots."""
        kinds = self.config.layers[: len(self.layers)]
        slots = {
            kind: tensors[0].shape[3]
            for layer, kind, tensors in zip(self.layers, kinds, states, strict=True)
            if layer.attention.state[0].has_slots
        }
        return dict.fromkeys(kinds, 0) | slots

    def _start(self, x_BTD: torch.Tensor, positions_BT: torch.Tensor) -> torch.Tensor:
        """What the first layer gets, of embeddings in float32."""
        if self.config.num_positions:
            x_BTD = x_BTD + self.position_embed(positions_BT + self.config.position_offset).float()
        if self.config.embed_norm is not None:
            x_BTD = self.embed_norm(x_BTD).float()
        return x_BTD if self.config.input_scale == 1.0 else x_BTD * self.config.input_scale

    def _views(
        self,
        positions_BT: torch.Tensor,
        places: torch.Tensor,
        num_slots: int | None,
        prompt: Prompt | None,
        num_new_B: torch.Tensor | None,
        num_kept: dict[LayerKind, int],
        table_BM: torch.Tensor | None,
        rows_B: torch.Tensor | None,
    ) -> dict[LayerKind, AttentionView]:
        """What the layers of each kind share, which keep so many slots; equal rotations and masks are made once."""
        ring = blocks = None
        if table_BM is not None:
            assert num_slots is not None, "a cache that is divided into blocks is read by its slots"
            blocks = place_tokens(table_BM, positions_BT, num_new_B, num_slots // table_BM.shape[1])
        elif num_new_B is not None:
            ring = Ring(positions_BT=positions_BT, num_new_B=num_new_B)
        angles = {
            rotary: rotary_angles(places, getattr(self, f"inv_freq_{number}"), rotary)
            for number, rotary in enumerate(self.config.rotaries)
        }
        num_kept_of = {(kind.window, kind.chunk): num for kind, num in num_kept.items()}
        masks = {
            seen: self._mask(positions_BT, num_slots, ring, num, *seen, prompt) for seen, num in num_kept_of.items()
        }
        return {
            kind: AttentionView(
                positions_BT=positions_BT,
                angles=None if kind.rotary is None else angles[kind.rotary],
                mask=masks[kind.window, kind.chunk],
                num_slots=num_slots,
                num_new_B=num_new_B,
                rows_B=rows_B,
                ring=None if kind.reach is None else ring,
                blocks=blocks,
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
        prompt: Prompt | None,
    ) -> torch.Tensor | None:
        """What layers see that keep so many slots, or what is added to their scores; see `AttentionView.mask`."""
        has_alibi, is_limited = bool(self.config.alibi_slopes), bool(window or chunk)
        if num_slots is not None and is_limited and not self.is_paged:
            assert ring is not None and not has_alibi, "a layer with a window counts tokens, and slots have no order"
            return ring.visible(num_kept, num_slots, window, chunk)
        has_blocks = prompt is not None and prompt.blocks_BT is not None
        if num_slots is None and not (is_limited or has_alibi or has_blocks or self.config.score_cap is not None):
            return None
        num_keys = positions_BT.shape[1] if num_slots is None else num_slots
        mask = visible_slots(positions_BT, num_keys, window, chunk, prompt)
        return self.alibi(mask, positions_BT) if has_alibi else mask


def one_token(x_BTD: torch.Tensor, index_B: torch.Tensor) -> torch.Tensor:
    """Return the token [B, 1, D] of each row at `index_B`."""
    return x_BTD.gather(1, index_B[:, None, None].expand(-1, 1, x_BTD.shape[-1]))
