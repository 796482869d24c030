"""The cache that `generate` passes around: device-resident state, and which columns of the input are in it.

transformers counts columns of a padded batch; the device keeps each row's real tokens at the slots that equal
their positions. `columns` and `mask` hold what relates the two. Rows beyond the compiled batch size live in
further sets of state.

Shape legend: R rows, S hidden states of a source, D hidden.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from transformers.cache_utils import Cache

from ..errors import ConfigError, ShapeError, refusal
from ..runtime.loaded import LoadedProgram, State


class NeuronCache(Cache):
    """Key and value cache of a compiled model; `generate` makes it, beams reorder it, assistants crop it."""

    is_compileable = False

    def __init__(self, loaded: LoadedProgram, batch_size: int) -> None:
        super().__init__(layers=[])
        self._loaded, self._batch_size = loaded, batch_size
        self.states: list[State] = []
        self.columns = 0
        self.num_rows = 0
        self._sources_R: torch.Tensor | None = None  # a number for each row, the same where the source is
        self._spoilt: list[bool] = []
        weakref.finalize(self, _give_back, loaded, self.states, self._spoilt)

    def __len__(self) -> int:
        return len({name.rpartition(".")[2] for name in self._loaded.program.states})

    @property
    def is_croppable(self) -> bool:
        """Columns can be taken away: their slots are written again before they are seen."""
        return True

    def __deepcopy__(self, memo: dict[int, Any]) -> NeuronCache:
        """A cache of the same model with the same contents, for a prefix that several prompts share.

        Raises:
            DeviceMemoryError: another copy of the state does not fit in the core's HBM.
            CoreBusyError: the model was closed.
        """
        copied = NeuronCache(self._loaded, self._batch_size)
        copied._take(self.num_rows)
        for state, source in zip(copied.states, self.states, strict=False):
            state.executor = source.executor
            for tensor, original in zip(state, source, strict=True):
                tensor.copy_(original)
        copied.columns, copied._spoilt[:] = self.columns, self._spoilt
        copied._sources_R = None if self._sources_R is None else self._sources_R.clone()
        memo[id(self)] = copied
        return copied

    def __copy__(self) -> NeuronCache:
        """A copy with state of its own: the state of one cache belongs to that cache alone."""
        return copy.deepcopy(self)

    def reserve(self, num_rows: int, loaded: LoadedProgram) -> None:
        """Make room for the rows of a call.

        Raises:
            ConfigError: the cache belongs to another model.
            ShapeError: it holds another number of rows.
            DeviceMemoryError: the state of that many rows does not fit in the core's HBM.
        """
        if loaded is not self._loaded:
            raise ConfigError(
                refusal(
                    asked="past_key_values of another compiled model",
                    found=f"the cache was filled by {self._loaded.claim.model}",
                    why="keys and values of one model mean nothing to another",
                    do="pass what an earlier call of this model returned",
                )
            )
        if self.columns and num_rows != self.num_rows:
            raise ShapeError(
                refusal(
                    asked=f"{num_rows} rows with past_key_values",
                    found=f"the cache holds {self.num_rows} rows",
                    why="each row continues its own keys and values",
                    do=f"pass {self.num_rows} rows, or start without past_key_values",
                )
            )
        self._take(num_rows)

    def _take(self, num_rows: int) -> None:
        self.num_rows = num_rows
        while len(self.states) * self._batch_size < num_rows:
            self.states.append(self._loaded.take_state(self.states[0] if self.states else None))

    def read_sources(self, hidden_RSD: torch.Tensor, mask_RS: torch.Tensor | None) -> None:
        """Note which rows read the same source, as beams do: they need not exchange its keys and values."""
        is_new = (hidden_RSD[1:] != hidden_RSD[:-1]).flatten(1).any(1)
        if mask_RS is not None:
            is_new |= (mask_RS[1:] != mask_RS[:-1]).any(1)
        self._sources_R = torch.nn.functional.pad(is_new.long().cumsum(0), (1, 0))

    def row_groups(self, num_rows: int) -> Iterator[tuple[slice, State]]:
        """The rows that share a set of state, and the state."""
        for begin, state in zip(range(0, num_rows, self._batch_size), self.states, strict=False):
            yield slice(begin, min(begin + self._batch_size, num_rows)), state

    def add(self, num_columns: int, logits: torch.Tensor) -> None:
        """Count the columns of a call that gave these logits [rows, columns, V].

        Where the last ones are no numbers, keys or values may be none either, and that is remembered: a masked slot
        counts 0 times its value, and that is NaN.
        """
        self.columns += num_columns
        if not logits[:, -1].isfinite().all():
            self._spoilt.append(True)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns of the padded batch that are in the cache."""
        return self.columns

    def activate_past_recording(self) -> None:
        """Nothing to record: no slot is overwritten before it is cropped."""

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the newest columns; transformers passes their number as a negative value."""
        self.columns += min(tokens_to_remove, 0)

    def reset(self) -> None:
        """Forget everything."""
        self.columns = 0

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Let row i continue from what row `beam_idx[i]` was."""
        rows, sources_R = beam_idx.tolist(), self._sources_R
        keeps_sources = False
        if sources_R is not None:
            self._sources_R = sources_R[beam_idx]
            keeps_sources = torch.equal(self._sources_R, sources_R)
        if rows == list(range(len(rows))):
            return
        places = [divmod(row, self._batch_size) for row in rows]
        for index, name in enumerate(self._loaded.program.states):
            if keeps_sources and name.startswith("cross_"):
                continue
            tensors = [state[index] for state in self.states]
            picked = torch.stack([tensors[group][row] for group, row in places])
            for group, tensor in enumerate(tensors):
                part = picked[group * self._batch_size : (group + 1) * self._batch_size]
                tensor[: part.shape[0]] = part

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row; needed where one prompt continues in several ways."""
        rows = torch.arange(self.num_rows).repeat_interleave(repeats)
        self._take(len(rows))
        self.reorder_cache(rows)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep some rows."""
        self.reorder_cache(indices)
        self.num_rows = len(indices)

    def update(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a compiled model writes its cache inside the graph; it cannot be updated from outside")


def own_cache(past_key_values: Any, loaded: LoadedProgram, batch_size: int) -> NeuronCache:
    """The cache that an earlier call returned, or a new one.

    Raises:
        ConfigError: it is of another kind.
    """
    if past_key_values is None:
        return NeuronCache(loaded, batch_size)
    if not isinstance(past_key_values, NeuronCache):
        raise ConfigError(
            refusal(
                asked=f"past_key_values of type {type(past_key_values).__name__}",
                found="a host cache",
                why="keys and values live on the device",
                do="pass what an earlier call returned",
            )
        )
    return past_key_values


def _give_back(loaded: LoadedProgram, states: list[State], spoilt: list[bool]) -> None:
    for state in states:
        if spoilt:
            for tensor in state:
                tensor.zero_()
        loaded.give_back(state)
