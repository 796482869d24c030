"""A transformers cache whose tensors are graph inputs, so that a decoder exports with its state in place.

transformers' own static layer counts in a tensor that it updates, which an export cannot decompose; here the
positions are an input and nothing is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from ..common import (
    CACHE_NAMES,
    AttentionView,
    LayerState,
    Prompt,
    Ring,
    keep_state,
    place_tokens,
    real_tokens,
    state_of_rows,
    take_window,
    visible_slots,
)


class UncountedLayer(CacheLayerMixin):
    """A layer that counts no tokens: their positions are an input of the model."""

    is_sliding = False

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        raise AssertionError("the cache tensors are graph inputs")

    def get_seq_length(self) -> int:
        return 0


class SlotLayer(UncountedLayer):
    """Key cache [B, K, H, S] and value cache [B, K, S, H] of one layer; a token's slot is its position, or in a ring.

    Sparse attention of DeepSeek-V3.2 and its kin keeps one more key for each token, by which its indexer chooses what
    to attend to: [B, T, W] behind the one value of a token. It is written with the whole slot, because a write to a
    part of each slot would copy the cache.
    """

    def __init__(self, cache: Sequence[torch.Tensor], view: AttentionView) -> None:
        super().__init__()
        self.keys, self.values, *_ = self.cache = tuple(cache)
        self.view, self.num_slots = view, view.num_slots

    def update(self, key_states, value_states, *args, **kwargs):  # type: ignore[no-untyped-def]
        """Write in place; return what the queries attend to."""
        # Not before: a layer of Mllama that attends to images would take its slots for states of an image.
        self.is_initialized = True
        self._new = key_states, value_states
        # The rest of a slot is for the indexer's key, which comes next.
        room = self.cache[1].shape[3] - value_states.shape[3]
        self._write(torch.nn.functional.pad(value_states, (0, room)) if room else value_states)
        if self.num_slots is None:
            return key_states, value_states
        keys, values = self._read()
        return keys, values[..., : value_states.shape[3]]

    def update_indexer(self, indexer_key_states: torch.Tensor) -> torch.Tensor:
        """Write keys [B, T, W] of an indexer behind the values; return those that its queries are compared with."""
        self._write(torch.cat((self._new[1], indexer_key_states[:, None].to(self._new[1].dtype)), -1))
        if self.num_slots is None:
            return indexer_key_states
        return self._read()[1][:, 0, :, self._new[1].shape[3] :]

    def _read(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.view.read(self.cache, self._new[0].dtype)

    def _write(self, value_states: torch.Tensor) -> None:
        self.view.write(self.cache, self._new[0], value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return (query_length if self.num_slots is None else self.num_slots), 0

    def get_max_length(self) -> int:
        return self.num_slots if self.view.blocks and self.num_slots else int(self.cache[0].shape[3])


class StatelessLayer(UncountedLayer):
    """A layer without keys and values."""

    def update(self, key_states, value_states, *args, **kwargs):  # type: ignore[no-untyped-def]
        raise AssertionError("the layer wrote no keys and values before")

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_max_length(self) -> int:
        return -1


class StateCache(Cache):
    """The states of all layers in one call: slots for attention, and what convolutions and recurrences keep.

    It says that there is no earlier state, so that layers take their code for many tokens at once; that code gets the
    state from here, see `scans.py`. Tokens behind the first `num_new_B` of a row are padding, which no state may see.

    Shape legend: B rows, C channels, T new tokens, W tokens that a convolution keeps.
    """

    def __init__(
        self,
        layers: list[CacheLayerMixin],
        tensors: dict[tuple[str, int], torch.Tensor],
        *,
        num_new_B: torch.Tensor | None,
        starts_empty: bool,
        num_kept: Mapping[int, int] = MappingProxyType({}),
        prompt: Prompt | None = None,
        rows_B: torch.Tensor | None = None,
    ) -> None:
        super().__init__(layers=layers)
        self.prompt, self.rows_B = prompt, rows_B
        self.tensors, self.num_new_B, self.starts_empty = tensors, num_new_B, starts_empty
        self.num_kept = num_kept
        """Slots of the rings of each window."""
        self._scanned: tuple[str, int] | None = None
        self._read: tuple[str, int] | None = None
        self.num_scans = 0
        """Scans of the layer that runs: one, or one for each head."""

    def seen(
        self, positions_BT: torch.Tensor, num_keys: int, window: int | None = None, chunk: int | None = None
    ) -> torch.Tensor:
        """Return which keys each query sees [B, 1, T, keys]: new tokens of a prompt, or the first `num_keys` slots."""
        num_kept = self.num_kept.get(window or chunk or 0)
        if num_kept is None or self.starts_empty:
            return visible_slots(positions_BT, num_keys, window, chunk, self.prompt)
        assert self.num_new_B is not None, "rings come with the number of tokens"
        return Ring(positions_BT=positions_BT, num_new_B=self.num_new_B).visible(num_kept, num_keys, window, chunk)

    def real(self, num_tokens: int) -> torch.Tensor:
        """Which of the new tokens are real: boolean [B, T]."""
        assert self.num_new_B is not None, "a state without slots comes with the number of tokens"
        return real_tokens(self.num_new_B, num_tokens)

    def initial_state(self) -> torch.Tensor | None:
        """The state before the tokens of the layer that runs; None for zeros."""
        self._scanned = self._read
        self.num_scans += 1
        if self.starts_empty or self._read is None:
            return None
        return state_of_rows(self.tensors[self._read], self.rows_B)

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> None:
        return None

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> None:
        self._read, self.num_scans = (_indexed("recurrent_state", state_idx), layer_idx), 0

    def update_conv_state(
        self, conv_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: object
    ) -> torch.Tensor:
        """Return the kept inputs [B, C, W] and the new ones; keep the newest that are real."""
        assert self.num_new_B is not None, "a state without slots comes with the number of tokens"
        kept = self.tensors[_indexed("conv_state", state_idx), layer_idx]
        return take_window(kept, conv_states, self.num_new_B, starts_empty=self.starts_empty, rows_B=self.rows_B)

    def update_recurrent_state(
        self, recurrent_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: object
    ) -> torch.Tensor:
        self.require_scan(layer_idx, state_idx)
        state = self.tensors[_indexed("recurrent_state", state_idx), layer_idx]
        keep_state(state, recurrent_states, self.rows_B)
        return state_of_rows(state, self.rows_B)

    def require_scan(self, layer_idx: int, state_idx: int) -> None:
        """Make sure that a new state was computed from the one here and from real tokens only."""
        if self._scanned != (_indexed("recurrent_state", state_idx), layer_idx):
            raise NotImplementedError("its recurrence is of a kind that is not supported")

    def has_previous_state(self, layer_idx: int | None = None, state_idx: int | None = None) -> bool:
        return False

    def is_recording_past(self, layer_idx: int) -> bool:
        return False

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0


def _indexed(name: str, index: int) -> str:
    """Name of a state, of which most layers have one of a kind."""
    return f"{name}_{index}" if index else name


def state_cache(
    layouts: Sequence[LayerState],
    states: Sequence[torch.Tensor],
    positions_BT: torch.Tensor,
    *,
    num_slots: int | None,
    num_new_B: torch.Tensor | None = None,
    prompt: Prompt | None = None,
    table_BM: torch.Tensor | None = None,
    rows_B: torch.Tensor | None = None,
) -> StateCache:
    """Wrap the flat list of states as a transformers cache; where it is short, the last layers were cut off."""
    layers: list[CacheLayerMixin] = []
    tensors: dict[tuple[str, int], torch.Tensor] = {}
    num_kept: dict[int, int] = {}
    ring = None if num_new_B is None else Ring(positions_BT=positions_BT, num_new_B=num_new_B)
    blocks = None
    if table_BM is not None:
        assert num_slots is not None, "a cache that is divided into blocks is read by its slots"
        blocks = place_tokens(table_BM, positions_BT, num_new_B, num_slots // table_BM.shape[1])
    rest = iter(states)
    for index, layout in enumerate(layouts):
        own = dict(zip([tensor.name for tensor in layout], rest, strict=False))
        tensors |= {(name, index): tensor for name, tensor in own.items()}
        if "key_cache" in own:
            window = layout[0].window
            if window is not None:
                num_kept[window] = own["key_cache"].shape[3]
            view = AttentionView(
                positions_BT=positions_BT,
                angles=None,
                mask=None,
                num_slots=num_slots,
                ring=None if window is None else ring,
                blocks=blocks,
            )
            layers.append(SlotLayer([own[name] for name in CACHE_NAMES if name in own], view))
        else:
            layers.append(StatelessLayer())
    starts_empty = num_slots is None
    return StateCache(
        layers,
        tensors,
        num_new_B=num_new_B,
        starts_empty=starts_empty,
        num_kept=num_kept,
        prompt=prompt,
        rows_B=rows_B,
    )
