"""Pass: the program of one core becomes one that computes all cores of a tensor-parallel group in turn, for the host.

Every core has its part of the split weights and of the state; everything that all cores hold or compute alike exists
once (`alike.py`). An exchange becomes a function of the tensors of all cores, joined with the small calls that follow
it and are the same on every core. "name@2" is "name" on rank 2. Memory and time of a core are counted on the program
that goes in, never on the result.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ..ir import RANK_VALUE, Call, Graph, Program, Subprogram
from .alike import divide
from .autocast import PRODUCT_OPERANDS
from .pieces import Piece, calls_of, join, joined_body, wiring

if TYPE_CHECKING:
    from torch import fx


def unroll(program: Program, group_size: int, split: Collection[str]) -> Program:
    """Return the host program of a group of cores.

    Args:
        program: the program of one core.
        group_size: Number of cores; 1 returns the program unchanged.
        split: names of the weights of which every core has another part.
    """
    if group_size == 1:
        return program
    import torch

    ranks = range(group_size)
    bodies = _Bodies(program)
    own_weights = {f"weight:{name}" for name in split}
    graphs = {name: _Unrolled(graph, bodies, group_size, own_weights).graph() for name, graph in program.graphs.items()}
    called = {call.subprogram for graph in graphs.values() for call in graph.calls}
    weights = {
        own: spec
        for name, spec in program.weights.items()
        for own in ([f"{name}@{rank}" for rank in ranks] if name in split else [name])
    }
    return dataclasses.replace(
        program,
        graphs=graphs,
        subprograms={name: one for name, one in bodies.subprograms.items() if name in called},
        weights=weights,
        states={f"{name}@{rank}": spec for rank in ranks for name, spec in program.states.items()},
        constants=program.constants | {_rank_name(rank): torch.tensor(rank) for rank in ranks},
    )


def _rank_name(rank: int) -> str:
    return f"rank@{rank}"


class _Bodies:
    """Bodies of the host program; what is made of equal bodies is made once."""

    def __init__(self, program: Program) -> None:
        from ..collectives import exchange_of, host_exchange

        self.exchanges = {
            name: host_exchange(one) for name, one in program.subprograms.items() if exchange_of(one) is not None
        }
        self.subprograms = {**program.subprograms, **{one.name: one for one in self.exchanges.values()}}
        self._divided: dict[tuple[str, tuple[int, ...]], list[Piece]] = {}
        self._joined: dict[tuple[object, ...], Subprogram] = {}

    def divided(self, name: str, own: tuple[int, ...]) -> list[Piece]:
        """Return the pieces of a body of which cores have their own arguments at these positions."""
        if (name, own) not in self._divided:
            pieces = divide(self.subprograms[name], own)
            self.subprograms |= {piece.subprogram.name: piece.subprogram for piece in pieces}
            self._divided[name, own] = pieces
        return self._divided[name, own]

    def joined(self, calls: Sequence[Call], read: Collection[str]) -> Call:
        """Return one call in place of several that follow each other."""
        key = wiring(calls, read)
        if key not in self._joined:
            body = self._joined[key] = joined_body(calls, self.subprograms, read)
            self.subprograms[body.name] = body
        return join(calls, self._joined[key].name, read)

    def is_small(self, call: Call) -> bool:
        """Return whether a body multiplies no matrices."""
        nodes = self.subprograms[call.subprogram].body.graph.nodes
        return not any(str(node.target) in PRODUCT_OPERANDS for node in nodes)


class _Unrolled:
    """One graph being unrolled; `_own` has the values that differ between cores."""

    def __init__(self, graph: Graph, bodies: _Bodies, group_size: int, own_weights: Collection[str]) -> None:
        self._graph, self._bodies, self._group_size = graph, bodies, group_size
        self._own_weights = own_weights
        self._own: set[str] = set()

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
        ranks, exchange = range(self._group_size), self._bodies.exchanges[call.subprogram]
        inputs = tuple(self._at(call.inputs[0], rank) for rank in ranks)
        outputs = call.outputs
        if len(exchange.outputs) > 1:
            self._own.update(outputs)
            outputs = tuple(self._at(outputs[0], rank) for rank in ranks)
        return dataclasses.replace(call, subprogram=exchange.name, inputs=inputs, outputs=outputs)

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
        return [
            (
                dataclasses.replace(
                    call,
                    inputs=tuple(self._at(value, rank) for value in call.inputs),
                    outputs=tuple(self._at(value, rank) for value in call.outputs),
                ),
                False,
            )
            for rank in range(self._group_size)
        ]

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
        return value == RANK_VALUE or value.startswith("state:") or value in self._own_weights or value in self._own

    def _at(self, value: str, rank: int) -> str:
        if value == RANK_VALUE:
            return f"const:{_rank_name(rank)}"
        return f"{value}@{rank}" if self._is_own(value) else value
