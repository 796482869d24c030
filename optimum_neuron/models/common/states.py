"""What layers keep between calls, declared as data: keys and values of every token, or a state that tokens change.

A state has a row for each sequence. One with a slot for every token is read through masks, so tokens that are not real
leave no trace; others have to be kept from them. `seen_keys` says which keys a query sees: those before it, of its
window, of its chunk.

Shape legend: B batch, T new tokens.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

import torch

from ...base.core import Choice
from .prompt import Prompt

SLOTS = "num_slots"
"""Axis with an element for each token that a sequence can hold."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateTensor:
    """One tensor that a layer keeps for each sequence."""

    name: str
    """What it holds, for example "key_cache"."""
    axes: tuple[str, ...]
    """Axis of each dimension behind that of sequences."""
    sizes: tuple[int | None, ...]
    """Size of each; None for the number of slots."""
    dtype: str | None = None
    """torch's name of its dtype; None for that of the weights."""
    is_fixed: bool = False
    """Whether a prompt sets it, and later tokens only read it."""
    window: int | None = None
    """Most tokens that a query sees: the slots are a ring, see `rings.py`. None: every token has a slot."""

    @property
    def has_slots(self) -> bool:
        """Whether each token has its own place in it."""
        return SLOTS in self.axes

    @property
    def changes(self) -> bool:
        """Whether every token changes it."""
        return not self.has_slots and not self.is_fixed

    def shape(self, num_rows: int, num_tokens: int, num_added: int = 1) -> tuple[int, ...]:
        """Return the shape for sequences of so many tokens, to which one call adds at most `num_added`."""
        num_slots = num_tokens if self.window is None else min(num_tokens, self.window + num_added - 1)
        return (num_rows, *(num_slots if size is None else size for size in self.sizes))


LayerState = tuple[StateTensor, ...]
"""Tensors of one layer; empty for a layer that keeps nothing."""


def key_value_state(num_heads: int, key_width: int, value_width: int) -> LayerState:
    """Return the keys [B, K, H, S] and values [B, K, S, H] of an attention layer."""
    return (
        StateTensor(name="key_cache", axes=("num_heads", "key_width", SLOTS), sizes=(num_heads, key_width, None)),
        StateTensor(name="value_cache", axes=("num_heads", SLOTS, "value_width"), sizes=(num_heads, None, value_width)),
    )


POSITION_OFFSET = StateTensor(name="position_offset", axes=("one",), sizes=(1,), dtype="int64", is_fixed=True)
"""Added to the slot of a later token for its rotary position: images have fewer positions than tokens."""


def seen_within(state: LayerState, window: int | None) -> LayerState:
    """Return the state of a layer whose queries see at most `window` tokens; None for all."""
    return tuple(dataclasses.replace(tensor, window=window) if tensor.has_slots else tensor for tensor in state)


def counts_tokens(layers: Iterable[LayerState]) -> bool:
    """Return whether graphs need the number of real tokens in each row: padding would replace what layers keep."""
    return any(tensor.window is not None or tensor.changes for state in layers for tensor in state)


def ring_choice(layers: Sequence[LayerState]) -> Choice[str] | None:
    """Say which layers keep their newest tokens only, if any."""
    windows = Counter(state[0].window for state in layers if state and state[0].window is not None)
    if not windows:
        return None
    layers_of = [f"{number} of {len(layers)} with a window of {window}" for window, number in windows.items()]
    return Choice(value="ring", reason=f"layers keep the tokens that later ones see: {', '.join(layers_of)}")


def convolution_state(num_channels: int, num_taps: int, index: int = 0) -> LayerState:
    """Return the newest inputs [B, C, taps] of a causal convolution: one fewer than its kernel is long."""
    name = "conv_state" + (f"_{index}" if index else "")
    return (StateTensor(name=name, axes=("num_channels", "num_taps"), sizes=(num_channels, num_taps)),)


def recurrent_state(sizes: tuple[int, ...], index: int = 0) -> LayerState:
    """Return a state of a recurrence or of linear attention, in float32: rounding it each step would add up."""
    name = "recurrent_state" + (f"_{index}" if index else "")
    axes = tuple(f"state_axis_{number}" for number in range(len(sizes)))
    return (StateTensor(name=name, axes=axes, sizes=sizes, dtype="float32"),)


def seen_keys(queries: torch.Tensor, keys: torch.Tensor, window: int | None, chunk: int | None) -> torch.Tensor:
    """Whether queries at some positions see keys at others, by broadcasting: only keys before them, and themselves.

    Only the last `window` positions, or those of the query's own `chunk`, if these are numbers.
    """
    mask = keys <= queries
    if chunk:
        mask = mask & (keys // chunk == queries // chunk)
    return mask & (keys > queries - window) if window else mask


def visible_slots(
    positions_BT: torch.Tensor,
    num_keys: int,
    window: int | None,
    chunk: int | None = None,
    prompt: Prompt | None = None,
) -> torch.Tensor:
    """Which slots each query sees where a token's slot is its position: boolean [B, 1, T, num_keys].

    Also those of the query's own block of a `prompt` that has some.
    """
    queries, slots = positions_BT[:, None, :, None], torch.arange(num_keys)
    mask = seen_keys(queries, slots, window, chunk)
    together = None if prompt is None else prompt.together
    if prompt is None or together is None:
        return mask
    return mask | (together & (slots > queries - window) if window and not prompt.blocks_pass_windows else together)
