"""The protocol of decoders whose cache is a pool of blocks, for callers that keep whole sequences.

A sequence has its own row here, as in `sequences.py`, and a row always the same blocks. Package `batching` gives
blocks to requests one by one instead.

Shape legend: R sequences of a group, T new tokens, V vocabulary, M blocks in a row's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .decoder import Decoder, take_columns
from .packing import Packing, smallest_bucket
from .sequences import Group, Place, Sequences
from .signature import ADAPTER_INDEX, STATE_ROW, is_of_layer
from .steps import Results

if TYPE_CHECKING:
    import torch

    from ..compiler import Program
    from ..runtime import LoadedProgram
    from .features import PromptFeatures
    from .signature import Signature
    from .steps import CompiledRows


class PagedSequences(Sequences):
    """The state of a number of sequences in pools of blocks."""

    def __init__(self, loaded: LoadedProgram, signature: Signature) -> None:
        super().__init__(loaded, signature)
        tables = [graph.inputs["block_table"].shape for graph in loaded.program.graphs.values()]
        self._num_rows = max(shape[0] for shape in tables)
        self._width = max(shape[1] for shape in tables)
        self._is_pool = pools_of(loaded.program, signature)
        if any(self._is_pool):
            # The first block takes what padding writes.
            num_blocks = signature.state_size(loaded.program, "num_blocks")
            self._num_rows = min(self._num_rows, (num_blocks - 1) // self._width)

    def _copy_row(self, source: Place, place: Place) -> None:
        first, origin = (row_blocks(one.row, self._width) for one in (place, source))
        sets = (self._sets[place.state_set], self._sets[source.state_set])
        for tensor, original, is_pool in zip(*sets, self._is_pool, strict=True):
            if is_pool:
                tensor[first.start : first.stop] = original[origin.start : origin.stop]
            else:
                tensor[place.row] = original[source.row]


def pools_of(program: Program, signature: Signature) -> list[bool]:
    """Return for each state tensor whether it is a pool of blocks; others have a row for each row of a step."""
    return [signature.states[name.rpartition(".")[0]].has_slots for name in program.states]


def row_blocks(row: int, width: int) -> range:
    """Return the blocks of a row."""
    return range(1 + row * width, 1 + (row + 1) * width)


class PagedDecoder(Decoder):
    """The entry points of a compiled decoder with tables of blocks."""

    def __init__(self, loaded: LoadedProgram, signature: Signature) -> None:
        super().__init__(loaded, signature)
        self._loaded, self._is_pool = loaded, pools_of(loaded.program, signature)
        graphs = loaded.program.graphs
        self._width = max(graph.inputs["block_table"].shape[1] for graph in graphs.values())
        self.chunks_from = graphs[self.score_graph].inputs["input_ids"].shape[1]
        self._chunks = {"prefill": loaded.program.chunks("prefill"), "score": {self.chunks_from: self._score}}
        self.chunk_sizes = tuple(self._chunks["prefill"])
        """Tokens of compiled chunks, rising: a prompt is divided by the last, and its end padded to the smallest."""

    def _run(
        self,
        group: Group,
        input_ids_RT: torch.Tensor,
        packing: Packing,
        *,
        num_past: int,
        num_logits: int,
        features: PromptFeatures | None,
    ) -> Results:
        assert features is None, "prompts with images or audio have another protocol"
        longest = max(int(packing.lengths_R.max()), 1)
        ids_RT = packing.pack(input_ids_RT, longest)
        if num_past and longest <= self.extend_length:
            packed = self.extend(group, ids_RT, packing.first_R, packing.lengths_R)
        else:
            packed = self._read("prefill" if num_logits == 1 else "score", group, ids_RT, packing)
        return take_columns(packed, packing.index_RT, num_logits)

    def step(
        self, group: Group, graph: str, ids_RT: torch.Tensor, positions_RT: torch.Tensor, lengths_R: torch.Tensor
    ) -> Results:
        import torch

        num_rows, width = self._program.graphs[graph].inputs["block_table"].shape
        ids, positions = (torch.zeros(num_rows, ids_RT.shape[1], dtype=torch.long) for _ in range(2))
        table, lengths = torch.zeros(num_rows, width, dtype=torch.long), torch.zeros(num_rows, dtype=torch.long)
        ids[group.rows], positions[group.rows], lengths[group.rows] = ids_RT, positions_RT, lengths_R
        for row in group.rows:
            table[row] = torch.tensor(row_blocks(row, self._width)[:width])
        inputs = [ids, positions, table]
        if "num_new_tokens" in self._program.graphs[graph].inputs:
            inputs.append(lengths)
        if ADAPTER_INDEX in self._program.graphs[graph].inputs:
            inputs.append(torch.zeros_like(lengths))
            inputs[-1][group.rows] = torch.tensor(group.adapters)
        return {name: result[group.rows] for name, result in self._loaded.run(graph, inputs, group.state).items()}

    def _prepare(self, rows: CompiledRows, positions_G1: torch.Tensor) -> list[torch.Tensor]:
        import torch

        num_rows, width = self._program.graphs[rows.graph].inputs["block_table"].shape
        table, counts = torch.zeros(num_rows, width, dtype=torch.long), torch.zeros(num_rows, dtype=torch.long)
        for row in rows.group.rows:
            table[row], counts[row] = torch.tensor(row_blocks(row, self._width)[:width]), 1
        return [positions_G1, table, *self._counts(counts)]

    def _read(self, role: str, group: Group, ids_RT: torch.Tensor, packing: Packing) -> Results:
        """Read packed tokens in chunks, row by row; return results [R, T, ...], or [R, 1, ...] of the last ones."""
        import torch

        rows = zip(group.rows, packing.first_R.tolist(), packing.lengths_R.tolist(), group.adapters, strict=True)
        results: list[Results] = []
        for (row, first, length, adapter), ids in zip(rows, ids_RT, strict=True):
            parts: list[Results] = []
            for start in range(0, max(length, 1), self.chunks_from):
                chunk = ids[start : min(start + self.chunks_from, length)]
                place = (self.table_of(row), group.state, adapter, row)
                parts.append(self.read_chunk(role, chunk, first + start, *place))
            results.append({})
            for name, last in parts[-1].items():
                if role == "prefill" and not is_of_layer(name):
                    results[-1][name] = last
                    continue
                joined = torch.cat([part[name] for part in parts], 1)[:, : ids_RT.shape[1]]
                results[-1][name] = torch.nn.functional.pad(joined, (0, 0, 0, ids_RT.shape[1] - joined.shape[1]))
        return {name: torch.cat([result[name] for result in results]) for name in results[0]}

    def table_of(self, row: int) -> torch.Tensor:
        """Return the blocks of a row, as `read_chunk` takes them."""
        import torch

        return torch.tensor(row_blocks(row, self._width))

    def read_chunk(
        self,
        role: str,
        ids_T: torch.Tensor,
        first: int,
        table_M: torch.Tensor,
        state: list[torch.Tensor],
        adapter: int,
        row: int,
    ) -> Results:
        """Read tokens of one sequence from position `first` on; return results of the last one, or of the chunk.

        Args:
            role: "prefill" for logits of the last token, "score" for those of every one, padding included. Hidden
                states of layers are always those of every token.
            adapter: index of the LoRA adapter; read by programs with the input `ADAPTER_INDEX`.
            row: row of the sequence in states without slots, which start from zeros.
        """
        import torch

        length = smallest_bucket(len(ids_T), self._chunks[role])
        assert length is not None, "callers divide prompts"
        graphs = self._chunks[role][length]
        slots = smallest_bucket(first + len(ids_T), graphs)
        assert slots is not None, "whoever packs sequences checks that the cache holds them"
        width = self._program.graphs[graphs[slots]].inputs["block_table"].shape[1]
        ids = torch.zeros(1, length, dtype=torch.long)
        ids[0, : len(ids_T)] = ids_T
        positions = torch.arange(first, first + length).clamp_(max=slots - 1)[None]
        inputs = [ids, positions, table_M[None, :width], torch.tensor([len(ids_T)])]
        if STATE_ROW in self._program.graphs[graphs[slots]].inputs:
            inputs.append(torch.tensor([row]))
            if first == 0:
                self.clear_row(row, state)
        if role == "prefill":
            inputs.append(torch.tensor([max(len(ids_T) - 1, 0)]))
        if ADAPTER_INDEX in self._program.graphs[graphs[slots]].inputs:
            inputs.append(torch.tensor([adapter]))
        return self._loaded.run(graphs[slots], inputs, state)

    def clear_row(self, row: int, state: list[torch.Tensor]) -> None:
        """Let a row of states without slots be that of a new sequence."""
        for tensor, is_pool in zip(state, self._is_pool, strict=True):
            if not is_pool:
                tensor[row] = 0


def make_decoder(loaded: LoadedProgram, signature: Signature) -> Decoder:
    """Return the protocol of a compiled decoder."""
    return PagedDecoder(loaded, signature) if signature.is_paged else Decoder(loaded, signature)


def make_sequences(loaded: LoadedProgram, signature: Signature) -> Sequences:
    """Return an empty cache of a compiled model."""
    return PagedSequences(loaded, signature) if signature.is_paged else Sequences(loaded, signature)
