"""The cache that `generate` passes around: device-resident state, and which columns of the input are in it.

transformers counts columns of a padded batch; the device keeps each row's real tokens at the slots that equal
their positions. `columns` and `mask` hold what relates the two. Rows beyond the compiled batch size live in
further sets of state.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from transformers.cache_utils import Cache

from ..runtime.loaded import LoadedProgram, State


class NeuronCache(Cache):
    """Key and value cache of a compiled model; `generate` makes it, beams reorder it, assistants crop it."""

    is_compileable = False

    def __init__(self, loaded: LoadedProgram, batch_size: int) -> None:
        super().__init__(layers=[])
        self._loaded, self._batch_size = loaded, batch_size
        self.states: list[State] = []
        self.columns = 0
        weakref.finalize(self, _give_back, loaded, self.states)

    def __len__(self) -> int:
        return len(self._loaded.program.states) // 2

    @property
    def is_croppable(self) -> bool:
        """Columns can be taken away: their slots are written again before they are seen."""
        return True

    def reserve(self, num_rows: int) -> None:
        """Make room for rows.

        Raises:
            DeviceMemoryError: the state of that many rows does not fit in the core's HBM.
        """
        while len(self.states) * self._batch_size < num_rows:
            self.states.append(self._loaded.take_state())

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
        rows = beam_idx.tolist()
        if rows == list(range(len(rows))):
            return
        sources = [divmod(row, self._batch_size) for row in rows]
        for tensors in zip(*self.states, strict=True):
            picked = torch.stack([tensors[group][row] for group, row in sources])
            for group, tensor in enumerate(tensors):
                part = picked[group * self._batch_size : (group + 1) * self._batch_size]
                tensor[: part.shape[0]] = part

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row; needed where one prompt continues in several ways."""
        num_rows = len(self.states) * self._batch_size
        self.reserve(num_rows * repeats)
        self.reorder_cache(torch.arange(num_rows).repeat_interleave(repeats))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep some rows."""
        self.reorder_cache(indices)

    def update(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a compiled model writes its cache inside the graph; it cannot be updated from outside")


def _give_back(loaded: LoadedProgram, states: list[State]) -> None:
    for state in states:
        loaded.give_back(state)
