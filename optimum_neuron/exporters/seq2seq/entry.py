"""A transformers encoder-decoder called the way each graph calls it, with its caches as graph inputs.

encode_<n>   a source of up to n tokens: hidden states
prefill_<n>  the first token of a target: the source's cross-attention keys and values are computed and kept
decode       one more token of the target

All rows of a call are at the same position of their targets, as in transformers' own cache.

Shape legend: B batch, S source tokens, T target slots, D hidden, K heads, H head width, V vocabulary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, CacheLayerMixin, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from ...models.generic.cache import SlotLayer

MODEL = "model"
"""Attribute of the entries that holds the model: the first part of a program's weight names."""

STATES = ("self_key", "self_value", "cross_key", "cross_value")
"""What each layer keeps, in the order in which the states are passed."""


class TargetLayer(SlotLayer):
    """Self-attention cache of one layer, which knows how many tokens are in it."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, positions_B1: torch.Tensor, position: Any) -> None:
        super().__init__(keys, values, positions_B1, num_slots=keys.shape[3])
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
    """Source tokens to hidden states."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids_BS: torch.Tensor, attention_mask_BS: torch.Tensor) -> torch.Tensor:
        """Hidden states [B, S, D] in float32."""
        length = input_ids_BS.shape[1]
        mask = attention_mask_BS.bool()[:, None, None, :].expand(-1, 1, length, -1)
        encoder: Any = self.model.get_encoder()
        return encoder(input_ids=input_ids_BS, attention_mask=mask).last_hidden_state.float()


class TargetEntry(nn.Module):
    """One token of a target to logits; the first one reads the source too."""

    def __init__(self, model: nn.Module, *, is_first: bool) -> None:
        super().__init__()
        self.model, self.is_first = model, is_first

    def forward(self, token_B1: torch.Tensor, mask_BS: torch.Tensor, given: torch.Tensor, states: list[torch.Tensor]):  # type: ignore[no-untyped-def]
        """Logits [B, 1, V] in float32; `given` has the source's hidden states for the first token, else a position."""
        position = torch.zeros(1, dtype=torch.int64) if self.is_first else given
        # Later tokens do not read the source again; transformers wants something to see that there is one.
        hidden_BSD = given.to(self._dtype) if self.is_first else torch.zeros(*mask_BS.shape, 1)
        num_slots = states[0].shape[3]
        seen_B11T = (torch.arange(num_slots) <= position).expand(token_B1.shape[0], 1, 1, num_slots)
        positions_B1 = position[None].expand(token_B1.shape[0], 1)
        layers = list(zip(*[iter(states)] * len(STATES), strict=True))
        cache = EncoderDecoderCache(
            Cache(layers=[TargetLayer(keys, values, positions_B1, position) for keys, values, _, _ in layers]),
            Cache(layers=[SourceLayer(keys, values, is_filled=not self.is_first) for _, _, keys, values in layers]),
        )
        with known_positions(self.model):
            output = self.model(
                decoder_input_ids=token_B1,
                decoder_attention_mask=seen_B11T,
                encoder_outputs=BaseModelOutput(last_hidden_state=hidden_BSD),
                attention_mask=mask_BS.bool()[:, None, None, :],
                past_key_values=cache,
                use_cache=True,
            )
        return output.logits.float()

    @property
    def _dtype(self) -> torch.dtype:
        return next(parameter.dtype for parameter in self.model.parameters())


@contextlib.contextmanager
def known_positions(model: Any) -> Iterator[None]:
    """M2M100 compares a position with the size of its table, which would read a tensor's value; lengths are checked
    before anything is compiled.
    """
    table: Any = getattr(model.get_decoder(), "embed_positions", None)
    if not hasattr(table, "make_weights"):
        yield
        return

    def forward(input_ids: torch.Tensor, _embeddings: Any, num_past: torch.Tensor) -> torch.Tensor:
        positions = table.create_position_ids_from_input_ids(input_ids, table.padding_idx, num_past)
        return table.weights[positions]

    table.forward = forward
    try:
        yield
    finally:
        del table.forward
