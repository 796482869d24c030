"""The cache that `generate` passes around: the device's sequences, and which columns of the input are in them.

transformers counts columns of a padded batch; the device keeps each sequence's real tokens at the slots that equal
their positions, see `engine/sequences.py`.

Shape legend: R rows, S hidden states of a source, D hidden.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers.cache_utils import Cache

from ..engine import Signature, make_sequences
from ..errors import ConfigError, ShapeError
from ..models import Reach
from ..runtime import LoadedProgram
from ..upstream.cache_argument import CACHE
from .columns import Columns

_OWN_CACHE = "Pass the cache that an earlier call of this model returned."


class NeuronCache(Cache):
    """Key and value cache of a compiled model; `generate` makes it, beams reorder it, assistants crop it."""

    is_compileable = False

    def __init__(self, loaded: LoadedProgram, signature: Signature) -> None:
        super().__init__(layers=[])
        self._signature = signature
        self.sequences = make_sequences(loaded, signature)
        self.columns = 0
        self._layout = Columns()
        self.hidden: dict[str, torch.Tensor] = {}
        """Hidden states [R, columns, D] of the newest call of `forward`, of a program that returns them."""
        self._newest = 0

    def __len__(self) -> int:
        names = self.sequences.loaded.program.states
        return len({name.rpartition(".")[2].partition("@")[0] for name in names})  # on every core

    @property
    def is_linear(self) -> list[bool]:
        """For each layer whether its columns are not counted: none, those of states without slots are counted too."""
        return [False] * len(self)

    @property
    def num_rows(self) -> int:
        """Sequences that the cache holds."""
        return len(self.sequences)

    @property
    def is_croppable(self) -> bool:
        """Whether columns can be taken away: slots are written again before they are seen, other states are not."""
        return not self._without_slots

    @property
    def _without_slots(self) -> list[str]:
        """States that every token changes, by name without the layer."""
        states = self._signature.states.items()
        kept = {name for name, state in states if state.has_slots or state.is_shared or state.is_fixed}
        return sorted(self._signature.states.keys() - kept)

    def __deepcopy__(self, memo: dict[int, Any]) -> NeuronCache:
        """A cache of the same model with the same contents, for a prefix that several prompts share."""
        copied = NeuronCache(self.sequences.loaded, self._signature)
        copied.sequences, copied.columns, copied._newest = self.sequences.copy(), self.columns, self._newest
        copied._layout = self._layout.copy()
        memo[id(self)] = copied
        return copied

    def __copy__(self) -> NeuronCache:
        """A copy with separate state: the state of one cache belongs to that cache alone."""
        return copy.deepcopy(self)

    def reserve(self, num_rows: int, loaded: LoadedProgram) -> None:
        """Make room for the rows of a call."""
        if loaded is not self.sequences.loaded:
            model = self.sequences.loaded.claim.model
            message = f"{CACHE} belongs to another compiled model, {model}."
            raise ConfigError(message, hint=_OWN_CACHE, option=CACHE, model=model)
        cached = self.num_rows
        if self.columns and num_rows != cached:
            message = f"{CACHE} holds {cached} sequences, but the input has {num_rows}."
            hint = f"Pass {cached} sequences, or start without {CACHE}."
            raise ShapeError(message, hint=hint, num_rows=num_rows, num_cached=cached)
        self.sequences.resize(num_rows)

    def check_mask(self, mask_RC: torch.Tensor, reach: Reach | None) -> None:
        """Check that the tokens of a call can be added where a mask over all columns has them.

        Args:
            mask_RC: the mask.
            reach: what layers see; None for every earlier token.
        """
        num_forgotten = int(self._layout.forgotten(mask_RC, self.columns).max())
        if num_forgotten:
            self.require_croppable()
            self._require_kept(self.columns - num_forgotten)
        self._layout.check_holes(mask_RC, self.columns, reach, self._without_slots)

    def has_holes(self, mask_RC: torch.Tensor) -> bool:
        """Return whether columns between tokens have none, by a mask over all columns."""
        return bool(self._layout.holes(mask_RC, self.columns).any())

    def note_mask(self, mask_RC: torch.Tensor) -> None:
        """Note the mask of a call, before its columns are counted."""
        self._layout.note(mask_RC, self.columns)

    def read_sources(self, hidden_RSD: torch.Tensor, mask_RS: torch.Tensor | None) -> None:
        """Note which rows read the same source, as beams do: they need not exchange its keys and values."""
        is_new = (hidden_RSD[1:] != hidden_RSD[:-1]).flatten(1).any(1)
        if mask_RS is not None:
            is_new |= (mask_RS[1:] != mask_RS[:-1]).any(1)
        self.sequences.note_sources(torch.nn.functional.pad(is_new.long().cumsum(0), (1, 0)).tolist())

    def lengths(self, mask_RC: torch.Tensor | None) -> torch.Tensor:
        """Return the number of tokens of each sequence, by a mask over the columns; None if there is no padding."""
        if mask_RC is None:
            return torch.full((self.num_rows,), self.columns)
        return mask_RC[:, : self.columns].long().sum(1)

    def add(self, num_columns: int, logits: torch.Tensor) -> None:
        """Count new columns, the last of which gave the last of these logits [rows, columns, V]."""
        self.columns += num_columns
        self._newest = max(self._newest, self.columns)
        if not logits[:, -1].isfinite().all():
            self.sequences.note_not_finite()

    def newest_hidden(self, row: int, mask_RC: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """Return hidden states [tokens, D] of a row's real tokens in the newest call, by a mask over all columns."""
        states = {name: part[row] for name, part in self.hidden.items()}
        if mask_RC is None:
            return states
        mask_C = mask_RC[row, : self.columns].bool()
        return {name: part[mask_C[-len(part) :]] for name, part in states.items()}

    def note_written(self, num_columns: int) -> None:
        """Note that candidates were written up to a column, whether they stay or not."""
        self._newest = max(self._newest, num_columns)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns of the padded batch that are in the cache."""
        return self.columns

    def activate_past_recording(self) -> None:
        """Nothing to record: no token sees what the newest ones have replaced, see `models/common/rings.py`."""

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the newest columns; transformers passes their number as a negative value."""
        if tokens_to_remove < 0:
            self.require_croppable()
        num_left = self.columns + min(tokens_to_remove, 0)
        self._require_kept(num_left)
        self.columns = num_left
        self._layout.crop(num_left)
        self._newest = self._newest if num_left else 0

    def require_croppable(self) -> None:
        """Check that columns can be taken away."""
        if names := self._without_slots:
            message = f"This model's cache cannot forget tokens: {', '.join(names)} has no slot for each."
            raise ConfigError(message, hint="Generate without an assistant model or prompt lookup.", states=names)

    def _require_kept(self, num_columns: int) -> None:
        """Check that what the token after so many columns sees was not replaced by newer ones."""
        program, num_forgotten = self.sequences.loaded.program, self._newest - num_columns
        num_slots, most = self._signature.smallest_ring(program), self._signature.num_forgettable(program)
        if num_slots is None or most is None:
            return
        if self._newest > num_slots and num_columns and num_forgotten > most:
            message = f"This model's cache can forget {most} tokens, not {num_forgotten}: layers with a window "
            message += "have replaced what earlier tokens see."
            hint = f"Export with extend_length={num_forgotten}, or check fewer tokens of an assistant at once."
            raise ConfigError(message, hint=hint, num_tokens=num_forgotten, num_forgettable=most)

    def reset(self) -> None:
        """Forget everything."""
        self.columns = self._newest = 0
        self._layout = Columns()

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Let row i continue from the former row `beam_idx[i]`."""
        self._select(beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row; needed where one prompt continues in several ways."""
        self._select([row for row in range(self.num_rows) for _ in range(repeats)])

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep some rows."""
        self._select(indices.tolist())

    def _select(self, rows: list[int]) -> None:
        self.sequences.select(rows)
        self._layout.select(rows)

    def update(self, *args: object, **kwargs: object) -> Any:
        raise TypeError("a compiled model writes its cache inside the graph; it cannot be updated from outside")


def own_cache(cache: object, loaded: LoadedProgram, signature: Signature) -> NeuronCache:
    """Return the cache of an earlier call, or a new one."""
    if cache is None:
        return NeuronCache(loaded, signature)
    if not isinstance(cache, NeuronCache):
        kind = type(cache).__name__
        message = f"{CACHE} is a {kind}, but keys and values live on the device."
        raise ConfigError(message, hint=_OWN_CACHE, option=CACHE, type=kind)
    return cache
