"""A transformers cache whose tensors are graph inputs, so that a decoder exports with its state in place.

transformers' own static layer counts in a tensor that it updates, which an export cannot decompose; here the
positions are an input and nothing is counted.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotLayer(CacheLayerMixin):
    """Key and value cache of one layer; new entries go to the slots that equal their positions."""

    is_sliding = False

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, positions_BT: torch.Tensor, *, cached: bool) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.positions_BT, self.cached = positions_BT, cached
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        raise AssertionError("the cache tensors are graph inputs")

    def update(self, key_states, value_states, *args, **kwargs):  # type: ignore[no-untyped-def]
        """Write in place; return what the queries attend to."""
        assert self.keys is not None and self.values is not None
        slots = self.positions_BT[:, None, :, None].expand(key_states.shape)
        self.keys.scatter_(2, slots, key_states.to(self.keys.dtype))
        self.values.scatter_(2, slots, value_states.to(self.values.dtype))
        return (self.keys, self.values) if self.cached else (key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        assert self.keys is not None
        return (self.keys.shape[2] if self.cached else query_length), 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        assert self.keys is not None
        return int(self.keys.shape[2])


def slot_cache(states: list[torch.Tensor], positions_BT: torch.Tensor, *, cached: bool) -> Cache:
    """Wrap a flat list of key and value tensors as a transformers cache."""
    pairs = zip(states[::2], states[1::2], strict=True)
    return Cache(layers=[SlotLayer(keys, values, positions_BT, cached=cached) for keys, values in pairs])
