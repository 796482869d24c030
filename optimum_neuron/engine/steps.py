"""Decode steps of sequences that stay the same: inputs are prepared once, and a step replaces tokens and positions.

The protocols of `decoder.py` and `encoder_decoder.py` accept any columns for any sequences. A loop that adds one token
to every sequence needs none of their checks and packing after the prompt.

    steps = decoder.steps(sequences, lengths_R)
    logits_R1V = steps(tokens_R)["logits"]

Shape legend: R sequences, G compiled rows of a graph, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .packing import smallest_bucket
from .signature import SAMPLED

Results = dict[str, "torch.Tensor"]
"""Tensors [R, columns, ...] by name: "logits", and "last_hidden_state" of a program that returns it."""

READ = ("logits", *SAMPLED)
"""Results that pick the next token; a graph may have others."""

if TYPE_CHECKING:
    import torch

    from .sequences import Group, Sequences

    Prepare = Callable[["CompiledRows", torch.Tensor], list[torch.Tensor]]
    """From the rows of a graph and their positions [G, 1] to the inputs behind the tokens."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompiledRows:
    """The rows of a decode graph, and the sequences in them."""

    graph: str
    group: Group
    places: list[int]
    """For each compiled row the number of its sequence in the group."""

    @property
    def sources(self) -> list[int]:
        """For each compiled row the number of its sequence in the cache."""
        return [self.group.indices[place] for place in self.places]


class Steps:
    """The next decode steps of all sequences of a cache, which must not be resized or reordered meanwhile."""

    def __init__(
        self, graphs: Mapping[int, str], sequences: Sequences, lengths_R: torch.Tensor, prepare: Prepare
    ) -> None:
        """Prepare the inputs.

        Args:
            graphs: labels of the decode graphs by the number of slots that they see.
            lengths_R: tokens of each sequence that are in the cache.
            prepare: makes the inputs; it takes positions as they are, because each step increases them in place.
        """
        self._graphs, self._num_rows = graphs, len(sequences)
        any_graph = next(iter(graphs.values()))
        self._parts = [_Part(group, any_graph, lengths_R, prepare) for group in sequences.groups()]
        self._num_used, self._num_slots = int(lengths_R.max()), 0

    def __call__(self, tokens_R: torch.Tensor) -> Results:
        """Add one token to each sequence; return the logits [R, 1, V] of the next, and other results of `READ`."""
        self._num_used += 1
        if self._num_used > self._num_slots:
            slots = smallest_bucket(self._num_used, self._graphs)
            assert slots is not None, "generation ends at the compiled length"
            self._num_slots = slots
            for part in self._parts:
                part.use(self._graphs[slots])
        parts = [part.run(tokens_R) for part in self._parts]
        if self._parts[0].group.is_whole:
            return parts[0]
        first = {name: result for name, result in parts[0].items() if name in READ}
        joined = {name: result.new_empty(self._num_rows, *result.shape[1:]) for name, result in first.items()}
        for part, results in zip(self._parts, parts, strict=True):
            for name in joined:
                joined[name][part.group.indices] = results[name]
        return joined


class _Part:
    """Inputs of a group of sequences; rows without a sequence repeat the first."""

    def __init__(self, group: Group, any_graph: str, lengths_R: torch.Tensor, prepare: Prepare) -> None:
        import torch

        self.group, self._prepare, num_rows = group, prepare, group.num_rows(any_graph)
        self._places = group.places(num_rows)
        self._sources = [group.indices[place] for place in self._places]
        self._rows = None if group.rows == list(range(num_rows)) else group.rows
        self._positions_G1 = lengths_R[self._sources][:, None]
        self._tokens_G1 = torch.zeros_like(self._positions_G1)
        # Views of the same memory: an operator of torch takes many times as long as NumPy's between two steps.
        self._positions, self._tokens = self._positions_G1.numpy(), self._tokens_G1.numpy()[:, 0]

    def use(self, graph: str) -> None:
        """Prepare the calls of a graph."""
        rows = CompiledRows(graph=graph, group=self.group, places=self._places)
        others = self._prepare(rows, self._positions_G1)
        others += [tensor[self._places] for tensor in self.group.adapter_inputs(graph)]
        self._call = self.group.loaded.prepared(graph, [self._tokens_G1, *others], self.group.state)

    def run(self, tokens_R: torch.Tensor) -> Results:
        """Run the graph on the next tokens; return results [sequences of the group, 1, ...]."""
        self._tokens[:] = tokens_R.numpy()[self._sources]
        results = self._call()
        self._positions += 1
        if self._rows is None:
            return results
        return {name: result[self._rows] for name, result in results.items() if name in READ}
