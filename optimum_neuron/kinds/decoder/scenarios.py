"""Scenarios of decoders: padded prompts of every bucket, decode steps past bucket limits, chunks, reordered sequences.

Prompts have padding on both sides and sequences of different lengths, so packing, cache positions and the choice of
buckets are compared too. The reference reads each sequence without padding before it.

Shape legend: R sequences, T tokens of a sequence, C columns of a padded batch, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from ...base.transformers_types import PreTrainedModel
from ...base.wording import counted
from ...engine import (
    PagedDecoder,
    PromptFeatures,
    Sequences,
    make_decoder,
    make_sequences,
    plan_packing,
    reads_features,
)
from ..scenario import SEED, Recorder, Results, Scenario, cache_dtype, cache_scales, cached_logits, is_reachable

if TYPE_CHECKING:
    from ...engine import Signature

NUM_PROMPT_TOKENS, NUM_DECODE_STEPS, NUM_PADDING = 24, 4, 2
NUM_PAGED_ROWS, NUM_PAGED_STEPS = 3, 2
"""In blocks, prompts are read one by one, so more of them repeat the same graphs; a step has empty rows. The second
step reads what the first has written, after the sequences have changed places."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """Token sequences that start with a prompt."""

    ids_RT: torch.Tensor
    """Tokens; shorter sequences end with tokens that are not compared."""
    lengths: list[int]
    """Prompt tokens of each."""

    @property
    def num_columns(self) -> int:
        """Columns of the padded prompts."""
        return max(self.lengths) + NUM_PADDING

    @property
    def num_more(self) -> int:
        """Tokens of every sequence behind its prompt."""
        return self.ids_RT.shape[1] - max(self.lengths)

    def mask(self, num_steps: int = 0) -> torch.Tensor:
        """1 for real tokens of the padded batch: sequences with even numbers are padded before, others behind."""
        mask = torch.zeros(len(self.lengths), self.num_columns + num_steps, dtype=torch.int64)
        for row, length in enumerate(self.lengths):
            begin = self.num_columns - length if row % 2 == 0 else 0
            mask[row, begin : begin + length] = 1
        mask[:, self.num_columns :] = 1
        return mask

    def prompt(self) -> torch.Tensor:
        """The padded prompts [R, C]."""
        mask = self.mask()
        ids = torch.zeros_like(mask)
        for row, length in enumerate(self.lengths):
            ids[row, mask[row] == 1] = self.ids_RT[row, :length]
        return ids

    def next_tokens(self, first: int, num_tokens: int) -> torch.Tensor:
        """So many tokens of each sequence behind its prompt."""
        return torch.stack([self.ids_RT[row, n + first : n + first + num_tokens] for row, n in enumerate(self.lengths)])


class DecoderScenarios:
    """Scenarios of one program against the transformers model in float32."""

    def __init__(self, recorder: Recorder, signature: Signature, reference: PreTrainedModel) -> None:
        self._program, self._recorder, self._signature = recorder.program, recorder, signature
        self._decoder = make_decoder(recorder, signature)  # type: ignore[arg-type]  # a program that notes its calls
        self._reference = reference
        graph = next(graph for graph in self._program.graphs.values() if graph.role == "decode")
        num_rows = graph.inputs["input_ids"].shape[0]
        self._num_rows = min(num_rows, NUM_PAGED_ROWS) if signature.is_paged else num_rows
        self._num_steps = NUM_PAGED_STEPS if signature.is_paged else NUM_DECODE_STEPS
        self._cache_scales = cache_scales(recorder.weights)
        self._reads_features = reads_features(self._signature["score"].names)

    def __iter__(self) -> Iterator[Scenario]:
        smaller = num_tokens = 0
        for bucket in self._decoder.prefill_buckets:
            num_tokens = self._num_prompt_tokens(bucket, smaller)
            yield self._scenario(f"prompts of {counted(num_tokens, 'token')}", num_tokens)
            smaller = bucket
        largest = self._decoder.chunks_from
        in_chunks = self._signature.is_paged or (self._program.by_size("extend") and not self._reads_features)
        if in_chunks and self._decoder.num_slots > largest + 1 > num_tokens:
            yield self._scenario(f"prompts of {largest + 2} tokens, in chunks", largest + 2)
        # The scenarios before have run by now: decode graphs for longer sequences than theirs are left.
        decode = self._program.by_size("decode")
        if unused := {size: name for size, name in decode.items() if size > 1 and name not in self._recorder.graphs}:
            yield self._decode_graphs(unused)
        yield from self._chunk_graphs()
        for length in self._program.by_size("extend"):
            yield self._chunk(length)

    def _num_prompt_tokens(self, bucket: int, smaller: int) -> int:
        """Tokens of a prompt that a bucket is for; its decode steps pass the limit of a decode bucket if they can.

        In blocks they need not: prompts are read in small chunks, which takes seconds, and every decode graph runs.
        """
        most = max(min(bucket, self._decoder.num_slots - 1), 1)
        if self._signature.is_paged:
            # Behind the limit of a smaller graph, a whole chunk and the end of a prompt.
            more = self._decoder.chunks_from if smaller else 0
            return min(max(smaller + 1 + more, NUM_PROMPT_TOKENS), most)
        limits = [size - 1 for size in list(self._program.by_size("decode"))[:-1] if smaller < size - 1 <= most]
        return limits[0] if limits else min(max(smaller + 1, NUM_PROMPT_TOKENS), most)

    def _batch(self, num_tokens: int, num_more: int | None = None) -> Batch:
        generator = torch.Generator().manual_seed(SEED)
        num_more = self._num_steps if num_more is None else num_more
        vocabulary = self._reference.config.get_text_config(decoder=True).vocab_size
        shape = (self._num_rows, min(num_tokens + num_more, self._decoder.num_slots))
        ids = torch.randint(vocabulary, shape, generator=generator)
        # The first sequence is the longest; the second shows the results of a shorter one in the same batch.
        most = min(num_tokens, NUM_PROMPT_TOKENS) if self._signature.is_paged else num_tokens
        shorter = [max(most - row % 3, 1) for row in range(1, self._num_rows)]
        return Batch(ids_RT=ids, lengths=[num_tokens, *shorter])

    def _scenario(self, name: str, num_tokens: int) -> Scenario:
        batch = self._batch(num_tokens)
        run, reference = functools.partial(self._run, batch), functools.partial(self._expected, batch)
        return Scenario(name=name, run=run, reference=reference, num_equal=num_tokens)

    def _run(self, batch: Batch) -> Results:
        """Logits of prompt tokens, of the last ones, and of each step; sequences change places before the last."""
        mask, sequences = batch.mask(), self._sequences()
        last = self._call(batch.prompt(), mask, sequences, num_logits=1)[:, 0]
        results = {"prompt": self._scored(batch, sequences), "last prompt token": last}
        order = list(range(len(last)))
        for step in range(batch.num_more):
            if step == batch.num_more - 1:
                order.reverse()
                sequences.select(order)
            ids, mask = batch.next_tokens(step, 1)[order], batch.mask(step + 1)[order]
            logits = self._call(ids, mask, sequences, num_past=batch.num_columns + step)
            results[f"step {step}"] = logits[order, 0]
        return results

    def _scored(self, batch: Batch, sequences: Sequences) -> torch.Tensor:
        """Logits of all prompt tokens; in blocks, of the last chunk of the first prompt, which is read once more."""
        if (first := self._first_scored(batch)) is not None:
            assert isinstance(self._decoder, PagedDecoder), "other programs read all tokens at once"
            group = next(group for group in sequences.groups() if 0 in group.indices)
            row, ids = group.rows[group.indices.index(0)], batch.ids_RT[0, first : batch.lengths[0]]
            place = (first, self._decoder.table_of(row), group.state, 0, row)
            return self._decoder.read_chunk("score", ids, *place)["logits"][0, : len(ids)]
        mask = batch.mask()
        logits = self._call(batch.prompt(), mask, self._sequences())
        return torch.cat([logits[row][mask[row] == 1] for row in range(len(logits))])

    def _first_scored(self, batch: Batch) -> int | None:
        """The first token of a last chunk that can be read again: states without slots have changed by then."""
        can_read_again = self._signature.is_paged and all(state.has_slots for state in self._signature.states.values())
        return max(batch.lengths[0] - self._decoder.chunks_from, 0) if can_read_again else None

    def _expected(self, batch: Batch) -> Results:
        logits = self._logits(batch)
        rows = list(zip(logits, batch.lengths, strict=True))
        first = self._first_scored(batch)
        scored = [row[:length] for row, length in rows] if first is None else [logits[0][first : batch.lengths[0]]]
        results = {"prompt": torch.cat(scored)}
        results["last prompt token"] = torch.stack([row[length - 1] for row, length in rows])
        for step in range(batch.num_more):
            results[f"step {step}"] = torch.stack([row[length + step] for row, length in rows])
        return results

    @torch.no_grad()
    def _logits(self, batch: Batch) -> list[torch.Tensor]:
        """Logits [T, V] of each sequence by the reference model, with keys and values as the program's cache stores."""
        options, dtype = self._reference_options(batch), cache_dtype(self._program)
        if dtype is None and not self._signature.is_paged:
            return [*self._reference(batch.ids_RT, **options).logits.float()]
        # Chunks of a prompt with tables of blocks read what they have stored themselves.
        most = 0 if self._signature.is_paged else self._decoder.chunks_from
        rows = []
        for row, length in enumerate(batch.lengths):
            place = slice(row, row + 1), slice(length + batch.num_more)
            ids, own = batch.ids_RT[place], {name: value[place] for name, value in options.items()}
            if dtype is None:
                logits = self._reference(ids, **own).logits.float()
            else:
                exact = min(length, most)
                logits = cached_logits(self._reference, ids, dtype, num_exact=exact, scales=self._cache_scales, **own)
            rows.append(logits[0])
        return rows

    def _reference_options(self, batch: Batch) -> dict[str, torch.Tensor]:
        """What the reference takes beside token ids."""
        if "position_ids" not in inspect.signature(self._reference.forward).parameters:
            return {}
        # As `generate` passes them: without, RoBERTa and its kin count from another number.
        return {"position_ids": torch.arange(batch.ids_RT.shape[1]).expand(len(batch.ids_RT), -1)}

    def _chunk(self, length: int) -> Scenario:
        """A prompt, and several more tokens at once: a compiled chunk, and one token more where there is room.

        In blocks, only as many as the chunk has: the engine reads more of them as it reads a prompt. Fewer, where more
        would go through a longer chunk.
        """
        num_tokens = max(min(NUM_PROMPT_TOKENS, self._decoder.prefill_buckets[0], self._decoder.num_slots - length), 1)
        num_more = length
        if not self._signature.is_paged:
            numbers = range(length + 1, 0, -1)
            taken = (number for number in numbers if self._decoder.chunk_length(number, num_tokens) == length)
            num_more = next(taken, length + 1)
        batch = self._batch(num_tokens, num_more)

        def run() -> Results:
            sequences = self._sequences()
            self._call(batch.prompt(), batch.mask(), sequences, num_logits=1)
            ids, mask = batch.next_tokens(0, batch.num_more), batch.mask(batch.num_more)
            return {"chunk": self._call(ids, mask, sequences, num_past=batch.num_columns).flatten(0, 1)}

        def expected() -> Results:
            steps = list(self._expected(batch).values())[2:]
            return {"chunk": torch.stack(steps, 1).flatten(0, 1)}

        name = f"{counted(batch.num_more, 'token')} at once after {counted(num_tokens, 'token')}"
        return Scenario(name=name, run=run, reference=expected, num_equal=num_tokens)

    def _decode_graphs(self, graphs: dict[int, str]) -> Scenario:
        """A step through decode graphs that are for longer sequences, of which the slots in use are compared."""
        num_tokens = max(min(NUM_PROMPT_TOKENS, self._decoder.prefill_buckets[0], min(graphs) - 1), 1)
        batch = self._batch(num_tokens)

        def run() -> Results:
            prompt = self._sequences()
            self._call(batch.prompt(), batch.mask(), prompt, num_logits=1)
            packing = plan_packing(batch.mask(1), batch.num_columns)
            step = (batch.next_tokens(0, 1), packing.positions_RT, packing.lengths_R)
            results = {}
            for graph in graphs.values():
                # A step changes a state without slots, so every graph starts from that of the prompt.
                sequences = prompt.copy()
                (group,) = sequences.groups()
                results[f"a step of {graph}"] = self._decoder.step(group, graph, *step)["logits"][:, 0]
            return results

        def expected() -> Results:
            logits = self._expected(batch)["step 0"]
            return {f"a step of {graph}": logits for graph in graphs.values()}

        name = f"a step through larger decode graphs after {counted(num_tokens, 'token')}"
        return Scenario(name=name, run=run, reference=expected, num_equal=num_tokens)

    def _chunk_graphs(self) -> Iterator[Scenario]:
        """The end of a prompt through each graph with tables of blocks that no prompt before went through."""
        for length, graphs in self._program.chunks("prefill").items() if self._signature.is_paged else ():
            for slots, name in graphs.items():
                if name not in self._recorder.graphs and is_reachable(self._program, self._program.graphs[name]):
                    yield self._chunk_graph(min(length, slots), slots)

    def _chunk_graph(self, num_tokens: int, num_slots: int) -> Scenario:
        """The last so many of the tokens that a graph has slots for; others have read those before them."""
        first = num_slots - num_tokens
        batch = Batch(ids_RT=self._batch(num_slots, 0).ids_RT[:1], lengths=[first])

        def run() -> Results:
            assert isinstance(self._decoder, PagedDecoder), "other programs have no chunks"
            sequences = make_sequences(self._recorder, self._signature)  # type: ignore[arg-type]
            sequences.resize(1)
            if first:
                mask = torch.ones(1, first, dtype=torch.int64)
                self._call(batch.ids_RT[:, :first], mask, sequences, num_logits=1)
            (group,) = sequences.groups()
            (row,) = group.rows
            place = (first, self._decoder.table_of(row), group.state, 0, row)
            results = self._decoder.read_chunk("prefill", batch.ids_RT[0, first:], *place)
            return {"last token": results["logits"]}

        def expected() -> Results:
            return {"last token": self._logits(batch)[0][None, -1:]}

        name = f"a chunk of {counted(num_tokens, 'token')} after {counted(first, 'token')}"
        return Scenario(name=name, run=run, reference=expected)

    def _call(
        self, ids: torch.Tensor, mask: torch.Tensor, sequences: Sequences, *, num_past: int = 0, num_logits: int = 0
    ) -> torch.Tensor:
        """Behavior of a model's `forward`."""
        features = None if num_past else self._no_features(mask)
        packing = plan_packing(mask, num_past)
        return self._decoder(ids, packing, sequences, num_past=num_past, num_logits=num_logits, features=features)

    def _sequences(self) -> Sequences:
        sequences = make_sequences(self._recorder, self._signature)  # type: ignore[arg-type]
        sequences.resize(self._num_rows)
        return sequences

    def _no_features(self, mask: torch.Tensor) -> PromptFeatures | None:
        """Features of a prompt that has none, for a program whose prompts can have some; here prompts cannot."""
        return None
