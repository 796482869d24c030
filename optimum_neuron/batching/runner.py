"""Runs chunks and steps of a compiled decoder: fills its static inputs, and keeps the pool of its keys and values.

Every row goes through the smallest step that holds it, so that its arithmetic does not depend on longer rows beside it.

Shape legend: B rows of a step, M blocks in a row's table, V vocabulary.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..engine import ADAPTER_INDEX, PagedDecoder, Signature, smallest_bucket
from ..runtime import HOOKS, ServingCost
from .request import Request

if TYPE_CHECKING:
    from ..runtime import LoadedProgram


class Runner:
    """The graphs of a program, and one pool of blocks.

    Raises:
        DeviceMemoryError: another pool does not fit in the core's HBM.
    """

    def __init__(self, loaded: LoadedProgram, signature: Signature) -> None:
        assert signature.is_paged, "the cache of the program is a pool of blocks"
        self._loaded, self._decoder = loaded, PagedDecoder(loaded, signature)
        program = loaded.program
        self._steps = program.by_size("decode")
        self.num_blocks = signature.state_size(program, "num_blocks")
        self.block_size = signature.state_size(program, "block_size")
        self.chunk_size, self.num_slots = self._decoder.chunks_from, self._decoder.num_slots
        shapes = [program.graphs[name].inputs["block_table"].shape for name in self._steps.values()]
        self.num_rows, self._width = shapes[0][0], max(shape[1] for shape in shapes)
        self._state = loaded.take_state()
        self._tables_BM = torch.zeros(self.num_rows, self._width, dtype=torch.long)
        self._num_listed = [0] * self.num_rows
        self._give_back = weakref.finalize(self, loaded.give_back, self._state)

    @property
    def block_bytes(self) -> int:
        """HBM of a block on each core."""
        return self._loaded.need.kv_cache // self.num_blocks

    @property
    def serving_cost(self) -> ServingCost:
        """Simulated time around the graphs."""
        return HOOKS.serving_cost(self._loaded.tracks[0].instance.name)

    def close(self) -> None:
        """Give the pool back; the object cannot run afterwards."""
        self._give_back()

    def read(self, request: Request, start: int, num_tokens: int) -> torch.Tensor:
        """Read tokens of a request's prompt; return logits [V] of the last one."""
        ids = torch.tensor(request.prompt[start : start + num_tokens])
        table = torch.zeros(self._width, dtype=torch.long)
        table[: len(request.blocks)] = torch.tensor(request.blocks)
        return self._decoder.read_chunk("prefill", ids, start, table, self._state, request.adapter.index)[0, 0]

    def step(self, requests: Sequence[Request]) -> list[torch.Tensor]:
        """Add the newest token of each request; return logits [V] for each."""
        by_slots: dict[int, list[int]] = {}
        for index, request in enumerate(requests):
            slots = smallest_bucket(request.num_computed + 1, self._steps)
            assert slots is not None, "a request ends before its slots do"
            by_slots.setdefault(slots, []).append(index)
        results: list[Any] = [None] * len(requests)
        for slots, indices in by_slots.items():
            logits_B1V = self._run_step(self._steps[slots], [requests[index] for index in indices])
            for index in indices:
                results[index] = logits_B1V[requests[index].row, 0]
        return results

    def _run_step(self, graph: str, requests: Sequence[Request]) -> torch.Tensor:
        ids, positions, adapters = ([0] * self.num_rows for _ in range(3))
        for request in requests:
            assert request.row is not None, "a running request has a row"
            ids[request.row], positions[request.row] = request.answer[-1], request.num_computed
            adapters[request.row] = request.adapter.index
            self._list_blocks(request)
        graph_inputs = self._loaded.program.graphs[graph].inputs
        width = graph_inputs["block_table"].shape[1]
        tables = self._tables_BM[:, :width]
        if len(requests) < self.num_rows:
            rows = [request.row for request in requests]
            tables, listed = torch.zeros(self.num_rows, width, dtype=torch.long), tables
            tables[rows] = listed[rows]
        inputs = [torch.tensor(ids)[:, None], torch.tensor(positions)[:, None], tables]
        if ADAPTER_INDEX in graph_inputs:
            inputs.append(torch.tensor(adapters))
        return self._loaded.run(graph, inputs, self._state)["logits"]

    def _list_blocks(self, request: Request) -> None:
        """Bring the row's table up to date; it changes when a request begins, goes on, or fills a block."""
        row, blocks = request.row, request.blocks
        assert row is not None
        if self._num_listed[row] != len(blocks):
            self._tables_BM[row].zero_()
            self._tables_BM[row, : len(blocks)] = torch.tensor(blocks)
            self._num_listed[row] = len(blocks)

    def free_row(self, row: int) -> None:
        """Note that a row has another request from now on."""
        self._num_listed[row] = 0

    def save(self, blocks: Sequence[int]) -> list[torch.Tensor]:
        """Copy blocks to the host."""
        return [tensor[list(blocks)] for tensor in self._state]

    def restore(self, saved: Sequence[torch.Tensor], blocks: Sequence[int]) -> None:
        """Copy what was saved back, to other blocks."""
        for tensor, content in zip(self._state, saved, strict=True):
            tensor[list(blocks)] = content

    def clear(self, blocks: Sequence[int]) -> None:
        """Fill blocks with zeros: a masked slot counts 0 times its value, and NaN would stay NaN."""
        for tensor in self._state:
            tensor[list(blocks)] = 0
