"""Pass: the program of one core becomes one that computes all cores of a tensor-parallel group in turn, for the host.

Every core has its part of the split weights and of the state; everything that all cores hold or compute alike exists
once (`alike.py`), and what a core computes of zeros alone is left out (`idle.py`). An exchange becomes a function of
the tensors of all cores, joined with the small calls that follow it and are the same on every core. "name@2" is "name"
on rank 2. Memory and time of a core are counted on the program that goes in, never on the result.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ...weights import Shards
from ..ir import RANK_VALUE, Call, Graph, Program, Subprogram
from ..rules import product_operands
from .alike import divide
from .exchanges import host_exchange
from .idle import drop_unread, zero_results
from .pieces import Piece, calls_of, join, joined_body, wiring

if TYPE_CHECKING:
    from torch import fx


def unroll(program: Program, shards: Shards) -> Program:
    """Return the host program of a group of cores.

    Args:
        shards: the weights of which every core has another part; a group of one core returns the program unchanged.
    """
    if shards.group_size == 1:
        return program
    import torch

    ranks = range(shards.group_size)
    bodies = _Bodies(program)
    graphs = {name: _Unrolled(graph, bodies, shards).graph() for name, graph in program.graphs.items()}
    unrolled = drop_unread(
        dataclasses.replace(
            program,
            graphs=graphs,
            subprograms=bodies.subprograms,
            weights={
                own: spec
                for name, spec in program.weights.items()
                for own in ([f"{name}@{rank}" for rank in ranks] if name in shards.of_weights else [name])
            },
            states={f"{name}@{rank}": spec for rank in ranks for name, spec in program.states.items()},
            constants=program.constants | {_rank_name(rank): torch.tensor(rank) for rank in ranks},
        )
    )
    called = {call.subprogram for graph in unrolled.graphs.values() for call in graph.calls}
    subprograms = {name: one for name, one in unrolled.subprograms.items() if name in called}
    return dataclasses.replace(unrolled, subprograms=subprograms)


def _rank_name(rank: int) -> str:
    return f"rank@{rank}"


class _Bodies:
    """Bodies of the host program; what is made of equal bodies is made once."""

    def __init__(self, program: Program) -> None:
        from ..collectives import exchange_of

        self.subprograms = dict(program.subprograms)
        self.exchanges = {
            name: node for name, one in program.subprograms.items() if (node := exchange_of(one)) is not None
        }
        self._exchanged: dict[tuple[str, int], Subprogram] = {}
        self._divided: dict[tuple[str, tuple[int, ...]], list[Piece]] = {}
        self._joined: dict[tuple[object, ...], Subprogram] = {}
        self._zero_results: dict[tuple[str, tuple[int, ...]], frozenset[int]] = {}

    def _added(self, body: Subprogram) -> Subprogram:
        # An equal body stays: pieces refer to its nodes.
        return self.subprograms.setdefault(body.name, body)

    def exchanged(self, name: str, num_parts: int) -> Subprogram:
        """Return the body that computes an exchange from so many tensors."""
        if (name, num_parts) not in self._exchanged:
            self._exchanged[name, num_parts] = self._added(host_exchange(self.subprograms[name], num_parts))
        return self._exchanged[name, num_parts]

    def divided(self, name: str, own: tuple[int, ...]) -> list[Piece]:
        """Return the pieces of a body of which cores have their own arguments at these positions."""
        if (name, own) not in self._divided:
            pieces = divide(self.subprograms[name], own)
            for piece in pieces:
                self._added(piece.subprogram)
            self._divided[name, own] = pieces
        return self._divided[name, own]

    def joined(self, calls: Sequence[Call], read: Collection[str]) -> Call:
        """Return one call in place of several that follow each other."""
        key = wiring(calls, read)
        if key not in self._joined:
            self._joined[key] = self._added(joined_body(calls, self.subprograms, read))
        return join(calls, self._joined[key].name, read)

    def zero_results(self, name: str, zeros: tuple[int, ...]) -> frozenset[int]:
        """Return which results of a body are zeros if the arguments at these positions are."""
        if (name, zeros) not in self._zero_results:
            self._zero_results[name, zeros] = zero_results(self.subprograms[name], zeros)
        return self._zero_results[name, zeros]

    def is_small(self, call: Call) -> bool:
        """Return whether a body multiplies no matrices."""
        nodes = self.subprograms[call.subprogram].body.graph.nodes
        return not any(product_operands(node) for node in nodes)


class _Unrolled:
    """One graph being unrolled."""

    def __init__(self, graph: Graph, bodies: _Bodies, shards: Shards) -> None:
        self._graph, self._bodies, self._ranks = graph, bodies, range(shards.group_size)
        self._own = {f"weight:{name}" for name in shards.of_weights}
        """Values that differ between cores."""
        self._zero = {
            f"weight:{name}@{rank}"
            for name, shard in shards.of_weights.items()
            for rank in self._ranks
            if shard.is_zero(rank)
        }
        """Values of single cores that are zeros."""

    def graph(self) -> Graph:
        """Return the graph of all cores."""
        calls: list[tuple[Call, bool]] = []
        for number, call in enumerate(self._graph.calls):
            if call.subprogram in self._bodies.exchanges:
                calls.append((self._exchange(call), True))
                continue
            for part in self._parts(call, number):
                calls += self._of_part(part)
        outputs = {name: self._at(value, 0) for name, value in self._graph.outputs.items()}
        return dataclasses.replace(self._graph, calls=tuple(self._joined(calls, outputs)), outputs=outputs)

    def _exchange(self, call: Call) -> Call:
        from ..collectives import ALL_REDUCE

        inputs = [self._at(call.inputs[0], rank) for rank in self._ranks]
        if self._bodies.exchanges[call.subprogram].target is ALL_REDUCE:
            inputs = [value for value in inputs if value not in self._zero] or inputs
        exchange, outputs = self._bodies.exchanged(call.subprogram, len(inputs)), call.outputs
        if len(exchange.outputs) > 1:
            self._own.update(outputs)
            outputs = tuple(self._at(outputs[0], rank) for rank in self._ranks)
        return dataclasses.replace(call, subprogram=exchange.name, inputs=tuple(inputs), outputs=outputs)

    def _parts(self, call: Call, number: int) -> list[Call]:
        """Divide a call into what all cores compute alike and what differs."""
        own = tuple(position for position, value in enumerate(call.inputs) if self._is_own(value))
        if not own:
            return [call]
        subprogram = self._bodies.subprograms[call.subprogram]
        assert set(own).issuperset(subprogram.mutated), "a tensor of all cores is written"

        def name(node: fx.Node) -> str:
            return f"tmp:alike.{number}.{node.name}"

        return calls_of(call, subprogram.body, self._bodies.divided(call.subprogram, own), name)

    def _of_part(self, call: Call) -> list[tuple[Call, bool]]:
        """Return the calls of all cores, and whether it is one for all of them."""
        if not any(self._is_own(value) for value in call.inputs):
            return [(call, True)]
        self._own.update(call.outputs)
        return [(self._on_rank(call, rank), False) for rank in self._ranks]

    def _on_rank(self, call: Call, rank: int) -> Call:
        inputs, outputs = (tuple(self._at(v, rank) for v in values) for values in (call.inputs, call.outputs))
        zeros = tuple(position for position, value in enumerate(inputs) if value in self._zero)
        self._zero.update(outputs[position] for position in self._bodies.zero_results(call.subprogram, zeros))
        return dataclasses.replace(call, inputs=inputs, outputs=outputs)

    def _joined(self, calls: Sequence[tuple[Call, bool]], outputs: Mapping[str, str]) -> list[Call]:
        """Join small calls that follow each other and are the same on every core."""
        num_reads = Counter(outputs.values())
        num_reads.update(value for call, _ in calls for value in call.inputs)
        joined: list[Call] = []
        for joins, run in itertools.groupby(calls, lambda entry: entry[1] and self._bodies.is_small(entry[0])):
            following = [call for call, _ in run]
            if joins and len(following) > 1:
                inside = Counter(value for call in following for value in call.inputs)
                read = {v for call in following for v in call.outputs if num_reads[v] > inside[v]}
                following = [self._bodies.joined(following, read)]
            joined += following
        return joined

    def _is_own(self, value: str) -> bool:
        """Return whether cores have different tensors of a value."""
        return value == RANK_VALUE or value.startswith("state:") or value in self._own

    def _at(self, value: str, rank: int) -> str:
        if value == RANK_VALUE:
            return f"const:{_rank_name(rank)}"
        return f"{value}@{rank}" if self._is_own(value) else value
