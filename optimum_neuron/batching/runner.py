"""Runs chunks and steps of a compiled decoder: fills its static inputs, and keeps the pool of its keys and values.

Every row goes through the smallest step that holds it, so that its arithmetic does not depend on longer rows beside it.
A request ends on the host code that it began with: while that is replaced, a step takes a call for each.

Shape legend: B rows of a step, M blocks in a row's table, V vocabulary.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from ..engine import ADAPTER_INDEX, PagedDecoder, Signature, pools_of, smallest_bucket
from ..runtime import HOOKS, ServingCost
from .request import Request

if TYPE_CHECKING:
    from ..runtime import LoadedProgram, State

Results = dict[str, torch.Tensor]
"""Logits and hidden states by name."""


class Runner:
    """The graphs of a program, and one pool of blocks."""

    def __init__(self, loaded: LoadedProgram, signature: Signature) -> None:
        assert signature.is_paged, "the cache of the program is a pool of blocks"
        self._loaded, self._decoder = loaded, PagedDecoder(loaded, signature)
        program = loaded.program
        self._steps = program.by_size("decode")
        self._check = next(iter(program.by_size("extend").values()), None)
        self.chunk_sizes, self.num_slots = self._decoder.chunk_sizes, self._decoder.num_slots
        self.most_candidates = self._decoder.extend_length - 1
        """Tokens that one call checks behind the newest one."""
        tables = [program.graphs[name].inputs["block_table"].shape for name in self._steps.values()]
        rows, widths = zip(*tables, strict=True)
        self.num_rows, self._width = max(rows), max(widths)
        self._is_pool = pools_of(program, signature)
        self._slots_dims = {
            number: signature.states[name.rpartition(".")[0]].axes.index("block_size")
            for number, (name, is_pool) in enumerate(zip(program.states, self._is_pool, strict=True))
            if is_pool
        }
        """Where slots are in the tensors that are pools."""
        self.has_row_states = not all(self._is_pool)
        """Whether a request has states in its row too, which its tokens change."""
        # Without keys and values, blocks only count tokens: there are enough for all rows.
        has_blocks = any(self._is_pool)
        self.num_blocks = signature.state_size(program, "num_blocks") if has_blocks else self.num_rows * self._width + 1
        self.block_size = (
            signature.state_size(program, "block_size") if has_blocks else -(-self.num_slots // self._width)
        )
        self._state = loaded.take_state()
        self.state = loaded.renewed(self._state)
        """The pool for requests that begin now, with the host code that they run on."""
        self._state.executor = None
        self._tables_BM = torch.zeros(self.num_rows, self._width, dtype=torch.long)
        self._num_listed: dict[int, int] = {}
        self._spoilt: list[bool] = []
        self._give_back = weakref.finalize(self, _give_back, loaded, self._state, self._spoilt)

    @property
    def block_bytes(self) -> int:
        """HBM of a block on each core."""
        return self._loaded.need.kv_cache // self.num_blocks

    @property
    def serving_cost(self) -> ServingCost:
        """Simulated time around the graphs."""
        return HOOKS.serving_cost(self._loaded.tracks[0].instance.name)

    @property
    def levels(self) -> str:
        """Levels of the host code that new requests run on."""
        return self._loaded.executor.levels

    def is_earlier(self, request: Request) -> bool:
        """Return whether a request ends on earlier host code, or weights, than new ones."""
        return request.state is not None and request.state.executor is not self._loaded.executor

    def renew(self) -> bool:
        """Let requests that begin now run on the newest host code and weights; return whether there are newer ones."""
        if self.state.executor is self._loaded.executor:
            return False
        self.state = self._loaded.renewed(self._state)
        return True

    def close(self) -> None:
        """Give the pool back; the object cannot run afterwards."""
        self._give_back()

    def read(self, request: Request, start: int, num_tokens: int) -> Results:
        """Read tokens of a request's prompt; return results [1, ...] of the last one."""
        ids = torch.tensor(request.prompt[start : start + num_tokens])
        table = torch.zeros(self._width, dtype=torch.long)
        table[: len(request.blocks)] = torch.tensor(request.blocks)
        assert request.row is not None, "a request that is read has a row"
        places = (start, table, request.state, request.adapter.index, request.row)
        results = self._decoder.read_chunk("prefill", ids, *places)
        return {name: result[0] for name, result in results.items()}

    def step(self, requests: Sequence[Request]) -> list[Results]:
        """Add the newest token of each request, and its candidates; return results [tokens, ...] for each.

        Candidates of all requests are checked in one call, and requests without candidates go through their own step:
        what a request computes depends on its own candidates only.
        """
        by_graph: dict[tuple[str, int], list[int]] = {}
        for index, request in enumerate(requests):
            by_graph.setdefault((self._graph_of(request), id(request.state)), []).append(index)
        results: list[Results] = [{} for _ in requests]
        for (graph, _), indices in by_graph.items():
            rows = self._run_step(graph, [requests[index] for index in indices])
            for index in indices:
                row, num_tokens = requests[index].row, 1 + len(requests[index].candidates)
                results[index] = {name: result[row, :num_tokens] for name, result in rows.items()}
        return results

    def _graph_of(self, request: Request) -> str:
        if request.candidates:
            assert self._check is not None and len(request.candidates) <= self.most_candidates
            return self._check
        slots = smallest_bucket(request.num_next, self._steps)
        assert slots is not None, "a request ends before its slots do"
        return self._steps[slots]

    def _run_step(self, graph: str, requests: Sequence[Request]) -> Results:
        graph_inputs = self._loaded.program.graphs[graph].inputs
        ids_BT = torch.zeros(graph_inputs["input_ids"].shape, dtype=torch.long)
        first_B, lengths_B, adapters_B = (torch.zeros(self.num_rows, dtype=torch.long) for _ in range(3))
        for request in requests:
            assert request.row is not None, "a running request has a row"
            tokens = [request.answer[-1], *request.candidates]
            ids_BT[request.row, : len(tokens)] = torch.tensor(tokens)
            first_B[request.row], lengths_B[request.row] = request.num_computed, len(tokens)
            adapters_B[request.row] = request.adapter.index
            self._list_blocks(request)
        width = graph_inputs["block_table"].shape[1]
        tables = self._tables_BM[:, :width]
        if len(requests) < self.num_rows:
            rows = [request.row for request in requests]
            tables, listed = torch.zeros(self.num_rows, width, dtype=torch.long), tables
            tables[rows] = listed[rows]
        positions_BT = first_B[:, None] + torch.arange(ids_BT.shape[1])
        # Only padding can be behind the last slot.
        inputs = [ids_BT, positions_BT.clamp_(max=self.num_slots - 1), tables]
        inputs += [lengths_B] if "num_new_tokens" in graph_inputs else []
        inputs += [adapters_B] if ADAPTER_INDEX in graph_inputs else []
        return self._loaded.run(graph, inputs, requests[0].state)

    def _list_blocks(self, request: Request) -> None:
        """Bring the row's table up to date; it changes when a request begins, goes on, or fills a block."""
        row, blocks = request.row, request.blocks
        assert row is not None
        if self._num_listed.get(row) != len(blocks):
            self._tables_BM[row].zero_()
            self._tables_BM[row, : len(blocks)] = torch.tensor(blocks)
            self._num_listed[row] = len(blocks)

    def free_row(self, row: int) -> None:
        """Note that a row has another request from now on."""
        self._num_listed.pop(row, None)

    def save(self, blocks: Sequence[int], row: int) -> list[torch.Tensor]:
        """Copy blocks, and what a row has beside them, to the host."""
        parts = zip(self._state, self._is_pool, strict=True)
        return [tensor[list(blocks) if is_pool else [row]] for tensor, is_pool in parts]

    def restore(self, saved: Sequence[torch.Tensor], blocks: Sequence[int], row: int) -> None:
        """Copy what was saved back, to other blocks and another row."""
        for tensor, is_pool, content in zip(self._state, self._is_pool, saved, strict=True):
            tensor[list(blocks) if is_pool else [row]] = content

    def clear(self, blocks: Sequence[int]) -> None:
        """Fill blocks with zeros: a masked slot counts 0 times its value, and NaN would stay NaN."""
        for tensor, is_pool in zip(self._state, self._is_pool, strict=True):
            if is_pool:
                tensor[list(blocks)] = 0

    def clear_slots(self, blocks: Sequence[int], slots: Iterable[int]) -> None:
        """Fill slots of a request's blocks with zeros."""
        for number, dim in self._slots_dims.items():
            for slot in slots:
                block = self._state[number][blocks[slot // self.block_size]]
                block.select(dim - 1, slot % self.block_size).zero_()

    def note_not_finite(self) -> None:
        """Note that a graph wrote NaN or infinity; padding writes it to block 0, which all requests read."""
        self._spoilt.append(True)
        self.clear([0])


def _give_back(loaded: LoadedProgram, state: State, spoilt: list[bool]) -> None:
    if any(spoilt):
        for tensor in state:
            tensor.zero_()
    loaded.give_back(state)
