"""A transformers cache whose tensors are graph inputs, so that a decoder exports with its state in place.

transformers' own static layer counts in a tensor that it updates, which an export cannot decompose; here the
positions are an input and nothing is counted.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from ..common import first_slots, write_slots


class UncountedLayer(CacheLayerMixin):
    """A layer that counts no tokens: their positions are an input of the model."""

    is_sliding = False

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        raise AssertionError("the cache tensors are graph inputs")

    def get_seq_length(self) -> int:
        return 0


class SlotLayer(UncountedLayer):
    """Key cache [B, K, H, S] and value cache [B, K, S, H] of one layer; a token's slot is its position.

    Sparse attention of DeepSeek-V3.2 and its kin keeps one more key for each token, by which its indexer chooses what
    to attend to: [B, T, W] behind the one value of a token. It is written with the whole slot, because a write to a
    part of each slot would copy the cache.
    """

    def __init__(
        self, keys: torch.Tensor, values: torch.Tensor, positions_BT: torch.Tensor, *, num_slots: int | None
    ) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.positions_BT, self.num_slots = positions_BT, num_slots

    def update(self, key_states, value_states, *args, **kwargs):  # type: ignore[no-untyped-def]
        """Write in place; return what the queries attend to."""
        assert self.keys is not None and self.values is not None
        # Not before: a layer of Mllama that attends to images would take its slots for states of an image.
        self.is_initialized = True
        self._new = key_states, value_states
        # The rest of a slot is for the indexer's key, which comes next.
        room = self.values.shape[3] - value_states.shape[3]
        self._write(torch.nn.functional.pad(value_states, (0, room)) if room else value_states)
        if self.num_slots is None:
            return key_states, value_states
        keys, values = first_slots(self.keys, self.values, self.num_slots)
        return keys, values[..., : value_states.shape[3]]

    def update_indexer(self, indexer_key_states: torch.Tensor) -> torch.Tensor:
        """Write keys [B, T, W] of an indexer behind the values; return those that its queries are compared with."""
        assert self.values is not None
        self._write(torch.cat((self._new[1], indexer_key_states[:, None].to(self._new[1].dtype)), -1))
        if self.num_slots is None:
            return indexer_key_states
        return self.values[:, 0, : self.num_slots, self._new[1].shape[3] :]

    def _write(self, value_states: torch.Tensor) -> None:
        assert self.keys is not None and self.values is not None
        write_slots(self.keys, self.values, self.positions_BT, self._new[0], value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return (query_length if self.num_slots is None else self.num_slots), 0

    def get_max_length(self) -> int:
        assert self.keys is not None
        return int(self.keys.shape[3])


def slot_cache(states: list[torch.Tensor], positions_BT: torch.Tensor, *, num_slots: int | None) -> Cache:
    """Wrap a flat list of key and value tensors as a transformers cache."""
    pairs = zip(states[::2], states[1::2], strict=True)
    return Cache(layers=[SlotLayer(keys, values, positions_BT, num_slots=num_slots) for keys, values in pairs])
