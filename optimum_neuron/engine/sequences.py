"""Device state of sequences: each has a row of a state set.

A program is compiled for a number of rows, so its state comes in sets of that many. A sequence keeps its row while
others come and go; reordering exchanges handles, and copies a row only if two sequences now continue it.

    sequences = Sequences(loaded, signature)
    sequences.resize(3)
    for group in sequences.groups():
        logits = group.run("decode_128", [ids, positions])["logits"]
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .signature import ADAPTER_INDEX, Signature

if TYPE_CHECKING:
    import torch

    from ..runtime import LoadedProgram, State


class Place(NamedTuple):
    """Location of a sequence's state."""

    state_set: int
    row: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Sequences that share a state set: they go through a graph together."""

    loaded: LoadedProgram
    state: State
    indices: list[int]
    """The sequences, by the order of their rows."""
    rows: list[int]
    is_whole: bool
    """Whether these are all sequences, in their order."""
    adapters: list[int]
    """The LoRA adapter of each, 0 for the base model; read by programs with the input `ADAPTER_INDEX`."""

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the part of a tensor [sequences, ...] that belongs to the group."""
        return tensor if self.is_whole else tensor[self.indices]

    def places(self, compiled_rows: int) -> list[int]:
        """Return for each compiled row the number of its sequence in the group; rows without one repeat the first."""
        of_row = dict(zip(self.rows, range(len(self.rows)), strict=True))
        return [of_row.get(row, 0) for row in range(compiled_rows)]

    def num_rows(self, graph: str) -> int:
        """Return the rows that a graph is compiled for."""
        return next(iter(self.loaded.program.graphs[graph].inputs.values())).shape[0]

    def adapter_inputs(self, graph: str) -> list[torch.Tensor]:
        """Return the adapter index of each sequence if the graph takes it."""
        import torch

        return [torch.tensor(self.adapters)] * (ADAPTER_INDEX in self.loaded.program.graphs[graph].inputs)

    def run(self, graph: str, tensors: Sequence[torch.Tensor], *shared: torch.Tensor) -> dict[str, torch.Tensor]:
        """Run a graph on a tensor [sequences of the group, ...] for each input; rows without one repeat the first.

        The adapters of the sequences are added if the graph takes them.

        Args:
            tensors: inputs in the order of the graph.
        """
        tensors, compiled_rows = [*tensors, *self.adapter_inputs(graph)], self.num_rows(graph)
        if self.rows == list(range(compiled_rows)):
            return self.loaded.run(graph, [*tensors, *shared], self.state)
        places = self.places(compiled_rows)
        results = self.loaded.run(graph, [*(tensor[places] for tensor in tensors), *shared], self.state)
        return {name: result[self.rows] for name, result in results.items()}


class Sequences:
    """The state of a number of sequences of one program."""

    def __init__(self, loaded: LoadedProgram, signature: Signature) -> None:
        self.loaded, self._signature = loaded, signature
        self._num_rows = next(iter(loaded.program.states.values())).shape[0]
        self._sets: list[State] = []
        self._places: list[Place] = []
        self._adapters: list[int] = []
        self._source_of: dict[Place, int] = {}
        self._not_finite: list[bool] = []
        weakref.finalize(self, _give_back, loaded, self._sets, self._not_finite)

    def __len__(self) -> int:
        return len(self._places)

    def copy(self) -> Sequences:
        """Return a copy that has its own state."""
        copied = type(self)(self.loaded, self._signature)
        copied._take_sets(len(self._sets))
        for state, original in zip(copied._sets, self._sets, strict=True):
            state.executor = original.executor
            for tensor, source in zip(state, original, strict=True):
                tensor.copy_(source)
        copied._places[:], copied._not_finite[:] = self._places, self._not_finite
        copied._source_of, copied._adapters = dict(self._source_of), list(self._adapters)
        return copied

    def renew(self) -> None:
        """Run on the newest host code from now on; without this, sequences keep the code that they began with."""
        for state in self._sets:
            state.executor = self.loaded.executor

    def resize(self, num_sequences: int) -> None:
        """Add empty sequences of the base model, or drop the last ones."""
        del self._places[num_sequences:]
        self._places += self._free(num_sequences - len(self._places), in_use=self._places)
        self._adapters = [*self._adapters, *[0] * num_sequences][:num_sequences]

    def use_adapters(self, indices: Sequence[int]) -> None:
        """Set the LoRA adapter of each sequence, by its index in the program; 0 is the base model."""
        assert len(indices) == len(self), "an index for each sequence"
        self._adapters[:] = indices

    def groups(self) -> Iterator[Group]:
        """Yield the sequences of each state set, in the order of their rows."""
        every = list(range(len(self)))
        order = sorted(every, key=self._places.__getitem__)
        for number, state in enumerate(self._sets):
            indices = [index for index in order if self._places[index].state_set == number]
            if indices:
                rows = [self._places[index].row for index in indices]
                is_whole = indices == every
                adapters = [self._adapters[index] for index in indices]
                yield Group(
                    loaded=self.loaded, state=state, indices=indices, rows=rows, is_whole=is_whole, adapters=adapters
                )

    def run(self, call: Callable[[Group], dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Call a function for each group, and join its results in the order of the sequences."""
        import torch

        groups = list(self.groups())
        parts = [call(group) for group in groups]
        if groups[0].is_whole:
            return parts[0]
        order = torch.tensor([index for group in groups for index in group.indices]).argsort()
        return {name: torch.cat([part[name] for part in parts])[order] for name in parts[0]}

    def select(self, indices: Sequence[int]) -> None:
        """Let sequence i continue from the state of sequence `indices[i]`; a repeated index is copied."""
        places: dict[int, Place] = {}
        copies = []
        for position, index in enumerate(indices):
            if self._places[index] in places.values():
                copies.append(position)
            else:
                places[position] = self._places[index]
        free = self._free(len(copies), in_use=[*places.values()])
        for position, place in zip(copies, free, strict=True):
            self._copy_row(self._places[indices[position]], place)
            places[position] = place
        self._places = [places[position] for position in range(len(indices))]
        self._adapters = [self._adapters[index] for index in indices]

    def adopt(self, index: int, other: Sequences, source: int) -> None:
        """Let sequence `index` continue from the state of sequence `source` of another cache of the same program."""
        place, original = self._places[index], other._places[source]
        for tensor, content in zip(self._sets[place.state_set], other._sets[original.state_set], strict=True):
            tensor[place.row] = content[original.row]
        self._adapters[index] = other._adapters[source]
        self._not_finite += other._not_finite

    def note_sources(self, numbers: Sequence[int]) -> None:
        """Note which sequences read the same source: their shared states are equal once they are filled."""
        self._source_of = dict(zip(self._places, numbers, strict=True))

    def note_not_finite(self) -> None:
        """Note that keys or values may be no numbers: a masked slot counts 0 times its value, and that is NaN."""
        self._not_finite.append(True)

    def _copy_row(self, source: Place, place: Place) -> None:
        same_source = source in self._source_of and self._source_of[source] == self._source_of.get(place)
        names = self.loaded.program.states
        for name, tensor, original in zip(
            names, self._sets[place.state_set], self._sets[source.state_set], strict=True
        ):
            if not (same_source and self._signature.states[name.rpartition(".")[0]].is_shared):
                tensor[place.row] = original[source.row]
        if source in self._source_of:
            self._source_of[place] = self._source_of[source]

    def _free(self, num_places: int, *, in_use: Sequence[Place]) -> list[Place]:
        """The first free rows, in new sets if the old ones are full."""
        self._take_sets(-(-(len(in_use) + num_places) // self._num_rows))
        used = set(in_use)
        every = (Place(number, row) for number in range(len(self._sets)) for row in range(self._num_rows))
        return [place for place in every if place not in used][:num_places]

    def _take_sets(self, num_sets: int) -> None:
        while len(self._sets) < num_sets:
            self._sets.append(self.loaded.take_state(self._sets[0] if self._sets else None))


def _give_back(loaded: LoadedProgram, sets: list[State], not_finite: list[bool]) -> None:
    for state in sets:
        if any(not_finite):
            for tensor in state:
                tensor.zero_()
        loaded.give_back(state)
