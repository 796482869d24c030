"""A transformers encoder-decoder called the way each graph calls it, with its caches as graph inputs.

encode_<n>   a source of up to n tokens, frames or samples: hidden states
prefill_<n>  the first token of a target: the source's cross-attention keys and values are computed and kept
decode       one more token of the target

Rows of text are all at the same position of their targets, as in transformers' own cache. Decoders of speech take a
position for each row.

Shape legend: B batch, N places of a source, S hidden states of it, T target slots, D hidden, K heads, H head width,
V vocabulary.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, CacheLayerMixin, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from ...base.foreign import module_facts
from ...base.transformers_types import PreTrainedModel
from ...models.common import AttentionView
from ...models.generic import SlotLayer
from ...upstream.cache_argument import CACHE
from ...upstream.contract import replaced
from ..encoder.patches import masked_norm
from .sources import Source

MODEL = "model"
"""Attribute of the entries that holds the model: the first part of a program's weight names."""

STATES = ("self_key", "self_value", "cross_key", "cross_value")
"""What each layer keeps, in the order in which the states are passed."""


@dataclasses.dataclass
class EncodedSource(BaseModelOutput):
    """Hidden states of a source, with the mask over them that some decoders look for here."""

    attention_mask: torch.Tensor | None = None


class TargetLayer(SlotLayer):
    """Self-attention cache of one layer, which knows how many tokens are in it."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, positions_B1: torch.Tensor, position: object) -> None:
        view = AttentionView(positions_BT=positions_B1, angles=None, mask=None, num_slots=keys.shape[3])
        super().__init__((keys, values), view)
        self.position = position

    def get_seq_length(self) -> Any:
        """Tokens in the cache, as a tensor [1]: a graph does not know it."""
        return self.position


class SourceLayer(CacheLayerMixin):
    """Cross-attention cache [B, K, S, H] of one layer; written once for each source."""

    is_sliding = False

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, *, is_filled: bool) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.is_initialized, self.is_filled = True, is_filled

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        raise AssertionError("the cache tensors are graph inputs")

    def update(self, key_states, value_states, *args, **kwargs):  # type: ignore[no-untyped-def]
        """Keep the keys and values of a source in place."""
        assert self.keys is not None and self.values is not None
        self.keys[:, :, : key_states.shape[2]] = key_states
        self.values[:, :, : value_states.shape[2]] = value_states
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        assert self.keys is not None
        return int(self.keys.shape[2]), 0

    def get_seq_length(self) -> int:
        return int(self.is_filled)

    def get_max_length(self) -> int:
        assert self.keys is not None
        return int(self.keys.shape[2])


class EncodeEntry(nn.Module):
    """A source to hidden states [B, S, D] in float32, and results of each layer where they are wanted."""

    def __init__(self, model: nn.Module, source: Source, results: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.model, self.source, self.results = model, source, results

    def forward(self, content: torch.Tensor, mask_BN: torch.Tensor | None = None) -> list[torch.Tensor]:
        """`content` is [B, N], or [B, channels, N]."""
        encoder: Any = self.model.get_encoder()
        if mask_BN is None:
            output = encoder(content.to(dtype_of(self.model)))
        elif self.source.name == "input_ids":
            mask = mask_BN.bool()[:, None, None, :].expand(-1, 1, content.shape[1], -1)
            output = encoder(
                input_ids=content, attention_mask=_as_taken(mask, self.model), **layer_options(self.results)
            )
        else:
            output = self._recordings(encoder, content.to(dtype_of(self.model)), mask_BN)
        layers = [layer for name in self.results for layer in output[name]]
        return [tensor.float() for tensor in (output.last_hidden_state, *layers)]

    def _recordings(self, encoder: Any, samples_BN: torch.Tensor, mask_BN: torch.Tensor) -> Any:
        """Recordings that are padded at their end: each row gives what it gives alone.

        Moonshine normalizes over the whole recording, and takes a frame for a real one whose first sample is real,
        though its window reaches into the padding. Here a frame is real where its whole window is.
        """
        stride, conv, lengths_B = self.source.stride, encoder.conv1, mask_BN.sum(1)
        states_B = (lengths_B - self.source.window) // stride + 1
        # The encoder takes every `stride`-th of these.
        valid_BN = (torch.arange(mask_BN.shape[1]) // stride < states_B[:, None]).to(mask_BN.dtype)
        with masked_norm(encoder.groupnorm, (lengths_B - conv.kernel_size[0]) // conv.stride[0] + 1):
            return encoder(samples_BN, attention_mask=valid_BN)


class TargetEntry(nn.Module):
    """One token of a target to logits; the first one reads the source too."""

    def __init__(self, model: nn.Module, source: Source, *, is_first: bool, results: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.model, self.source = model, source
        self.is_first, self.results = is_first, results

    def forward(self, token_B1: torch.Tensor, *rest: Any) -> list[torch.Tensor]:
        """Logits [B, 1, V] and, where they are wanted, results of each layer, all in float32.

        The rest is the mask [B, S] where the source has one, then for the first token the source's hidden states
        [B, S, D] and for later ones a position [1] or [B, 1], then the list of states.
        """
        *masks, last, states = rest
        position = torch.zeros(1, dtype=torch.int64) if self.is_first else last
        num_states, num_slots = states[2].shape[2], states[0].shape[3]
        # Later tokens do not read the source again; transformers wants something to see that there is one.
        hidden_BSD = last.to(dtype_of(self.model)) if self.is_first else torch.zeros(len(token_B1), num_states, 1)
        positions_B1 = position.expand(token_B1.shape[0], 1)
        seen_B11T = torch.arange(num_slots) <= positions_B1[:, None, None, :]
        source_mask = _as_taken(masks[0].bool()[:, None, None, :], self.model) if masks else None
        layers = list(zip(*[iter(states)] * len(STATES), strict=True))
        cache = EncoderDecoderCache(
            Cache(layers=[TargetLayer(keys, values, positions_B1, position) for keys, values, _, _ in layers]),
            Cache(layers=[SourceLayer(keys, values, is_filled=not self.is_first) for _, _, keys, values in layers]),
        )
        by_row = {"decoder_position_ids": positions_B1} if self.source.has_row_positions else {}
        options = layer_options(self.results) if self.source.name == "input_ids" else {}
        is_recorded = bool(self.results) and not options
        with known_positions(self.model), recorded_weights(self.model, is_recorded) as weights:
            output = self.model(
                decoder_input_ids=token_B1,
                decoder_attention_mask=_as_taken(seen_B11T, self.model),
                encoder_outputs=EncodedSource(last_hidden_state=hidden_BSD, attention_mask=source_mask),
                attention_mask=source_mask,
                use_cache=True,
                **{CACHE: cache},
                **by_row,
                **options,
            )
        layers = weights if is_recorded else [layer for name in self.results for layer in output[name]]
        return [tensor.float() for tensor in (output.logits, *layers)]


def layer_options(results: tuple[str, ...]) -> dict[str, bool]:
    """Arguments of a model that make it return results of each layer."""
    return {f"output_{name.removeprefix('decoder_').removeprefix('cross_')}": True for name in results}


def _as_taken(mask: torch.Tensor, model: PreTrainedModel) -> torch.Tensor:
    """A mask of booleans as the model's attention takes it: eager attention adds it to the scores."""
    if model.config._attn_implementation != "eager":
        return mask
    dtype = dtype_of(model)
    return torch.where(mask, torch.zeros((), dtype=dtype), torch.full((), torch.finfo(dtype).min, dtype=dtype))


def dtype_of(model: nn.Module) -> torch.dtype:
    """What the model computes in."""
    return next(parameter.dtype for parameter in model.parameters())


def unfuse_cross_attention(model: PreTrainedModel) -> None:
    """Let Whisper's cross-attention compute its weights by themselves, which fused attention does not return."""
    for layer in model.get_decoder().layers:
        attention = layer.encoder_attn
        attention.config = copy.copy(attention.config)
        attention.config._attn_implementation = "eager"


@contextlib.contextmanager
def recorded_weights(model: PreTrainedModel, is_recorded: bool) -> Iterator[list[torch.Tensor]]:
    """Weights [B, K, 1, S] of cross-attention of each layer, if they are wanted, once the model has run."""
    weights: list[torch.Tensor] = []
    with contextlib.ExitStack() as stack:
        for layer in model.get_decoder().layers if is_recorded else ():
            stack.enter_context(layer.encoder_attn.register_forward_hook(lambda *call: weights.append(call[-1][1])))
        yield weights


def known_positions(model: PreTrainedModel) -> AbstractContextManager[None]:
    """M2M100 compares a position with the size of its table, which would read a tensor's value; lengths are checked
    before anything is compiled.
    """
    table = module_facts(model.get_decoder()).embed_positions
    if not hasattr(table, "make_weights"):
        return contextlib.nullcontext()

    def forward(input_ids: torch.Tensor, _embeddings: object, num_past: torch.Tensor) -> torch.Tensor:
        positions = table.create_position_ids_from_input_ids(input_ids, table.padding_idx, num_past)
        return table.weights[positions]

    return replaced(table, {"forward": forward})
