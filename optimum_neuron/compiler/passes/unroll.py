"""Pass: the program of one core becomes one that computes all cores of a tensor-parallel group in turn, for the host.

Every core has its part of the split weights and of the state; everything that all cores hold or compute alike exists
once. An exchange becomes a function of the tensors of all cores. "name@2" is "name" on rank 2. Memory and time of a
core are counted on the program that goes in, never on the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from ..ir import RANK_VALUE, Call, Graph, Program, Subprogram


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

    from ..collectives import exchange_of, host_exchange

    ranks = range(group_size)
    exchanges = {name: host_exchange(one) for name, one in program.subprograms.items() if exchange_of(one) is not None}
    subprograms = {name: one for name, one in program.subprograms.items() if name not in exchanges}
    subprograms |= {one.name: one for one in exchanges.values()}
    own_weights = {f"weight:{name}" for name in split}
    graphs = {
        name: _Unrolled(graph, program, group_size, exchanges, own_weights).graph()
        for name, graph in program.graphs.items()
    }
    weights = {
        own: spec
        for name, spec in program.weights.items()
        for own in ([f"{name}@{rank}" for rank in ranks] if name in split else [name])
    }
    return dataclasses.replace(
        program,
        graphs=graphs,
        subprograms=subprograms,
        weights=weights,
        states={f"{name}@{rank}": spec for rank in ranks for name, spec in program.states.items()},
        constants=program.constants | {_rank_name(rank): torch.tensor(rank) for rank in ranks},
    )


def _rank_name(rank: int) -> str:
    return f"rank@{rank}"


class _Unrolled:
    """One graph being unrolled; `_own` has the values that differ between cores."""

    def __init__(
        self,
        graph: Graph,
        program: Program,
        group_size: int,
        exchanges: dict[str, Subprogram],
        own_weights: Collection[str],
    ) -> None:
        self._graph, self._program, self._group_size = graph, program, group_size
        self._exchanges, self._own_weights = exchanges, own_weights
        self._own: set[str] = set()

    def graph(self) -> Graph:
        calls = [part for call in self._graph.calls for part in self._of_call(call)]
        outputs = {name: self._at(value, 0) for name, value in self._graph.outputs.items()}
        return dataclasses.replace(self._graph, calls=tuple(calls), outputs=outputs)

    def _of_call(self, call: Call) -> list[Call]:
        ranks = range(self._group_size)
        exchange = self._exchanges.get(call.subprogram)
        if exchange is not None:
            inputs = tuple(self._at(call.inputs[0], rank) for rank in ranks)
            outputs = call.outputs
            if len(exchange.outputs) > 1:
                self._own.update(outputs)
                outputs = tuple(self._at(outputs[0], rank) for rank in ranks)
            return [dataclasses.replace(call, subprogram=exchange.name, inputs=inputs, outputs=outputs)]
        if not any(self._is_own(value) for value in call.inputs):
            return [call]
        mutated = self._program.subprograms[call.subprogram].mutated
        assert all(self._is_own(call.inputs[position]) for position in mutated), "a tensor of all cores is written"
        self._own.update(call.outputs)
        return [
            dataclasses.replace(
                call,
                inputs=tuple(self._at(value, rank) for value in call.inputs),
                outputs=tuple(self._at(value, rank) for value in call.outputs),
            )
            for rank in ranks
        ]

    def _is_own(self, value: str) -> bool:
        """Return whether cores have different tensors of a value."""
        return value == RANK_VALUE or value.startswith("state:") or value in self._own_weights or value in self._own

    def _at(self, value: str, rank: int) -> str:
        if value == RANK_VALUE:
            return f"const:{_rank_name(rank)}"
        return f"{value}@{rank}" if self._is_own(value) else value
