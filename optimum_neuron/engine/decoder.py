"""The protocol of compiled decoders: which entry points a padded batch goes through, and in which pieces.

prefill and score read prompts, extend adds several tokens to sequences that are in the cache, decode one. It does not
depend on generation: callers mark the new columns.

    decoder = Decoder(loaded, signature)
    sequences = Sequences(loaded, signature)
    sequences.resize(len(input_ids))
    logits = decoder(input_ids, plan_packing(mask, num_past=0), sequences, num_past=0, num_logits=1)

Shape legend: R sequences, T new columns of the padded batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..base.core import Choice
from .packing import Packing, choose_bucket, chunk_length, smallest_bucket
from .signature import is_of_layer
from .steps import CompiledRows, Results, Steps

if TYPE_CHECKING:
    import torch

    from ..runtime import LoadedProgram
    from .features import PromptFeatures
    from .sequences import Group, Sequences
    from .signature import Signature


class Decoder:
    """The entry points of a compiled decoder."""

    def __init__(self, loaded: LoadedProgram, signature: Signature) -> None:
        program = loaded.program
        self._program = program
        self._prefill, self._score = program.by_size("prefill"), program.by_size("score")
        self._extend, self._decode = program.by_size("extend"), program.by_size("decode")
        self.prefill_buckets = tuple(self._prefill)
        """Compiled prompt lengths, rising."""
        self.score_graph = next(iter(self._score.values()))
        """Label of the score graph of the shortest prompts, whose inputs are those of all."""
        self._counts_tokens = "num_new_tokens" in signature["decode"].names
        self.extend_length = next(iter(self._extend), 1)
        """Tokens that one call adds to a sequence in the cache; the end of a long prompt may have larger calls."""
        self.num_slots = max(self._decode)
        """Tokens that a sequence can hold."""
        self.chunks_from = max(self._prefill)
        """Most tokens of a prompt that one call reads; longer ones are read in chunks."""

    def __call__(
        self,
        input_ids_RT: torch.Tensor,
        packing: Packing,
        sequences: Sequences,
        *,
        num_past: int,
        num_logits: int = 0,
        features: PromptFeatures | None = None,
    ) -> torch.Tensor:
        """Return logits [R, columns, V] of new columns; see `results`."""
        results = self.results(
            input_ids_RT, packing, sequences, num_past=num_past, num_logits=num_logits, features=features
        )
        return results["logits"]

    def results(
        self,
        input_ids_RT: torch.Tensor,
        packing: Packing,
        sequences: Sequences,
        *,
        num_past: int,
        num_logits: int = 0,
        features: PromptFeatures | None = None,
    ) -> Results:
        """Run new columns of a padded batch, write the cache, and return results [R, columns, ...].

        Args:
            sequences: the cache, one sequence for each row.
            num_past: columns of the padded batch that are in the cache.
            num_logits: number of last columns to return logits of; 0 for all.
            features: features of a prompt's images or audio, for a program that was compiled with them.
        """

        def run(group: Group) -> Results:
            ids_GT, own = group.take(input_ids_RT), packing.take(group)
            if ids_GT.shape[1] == 1 and num_past and bool(own.valid_RT.all()):
                return self.decode(group, ids_GT, own.positions_RT, own.lengths_R)
            return self._run(
                group,
                ids_GT,
                own,
                num_past=num_past,
                num_logits=num_logits,
                features=None if features is None else features.take(group),
            )

        return sequences.run(run)

    def choose_bucket(self, num_tokens: int) -> Choice[int]:
        """Return the prefill bucket for a prompt, and the reason."""
        hint = "Shorten the prompt, or export with a larger prefill_buckets or sequence_length."
        return choose_bucket(
            num_tokens, self.prefill_buckets, subject="The prompt", measure=f"{num_tokens} tokens", hint=hint
        )

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
        longest, num_skipped = max(int(packing.lengths_R.max()), 1), 0
        if num_past:
            packed = self.extend(group, packing.pack(input_ids_RT, longest), packing.first_R, packing.lengths_R)
        elif longest > self.chunks_from and features is None:
            first = int(packing.index_RT[:, -num_logits:].min())
            packed, num_skipped = self._in_chunks(group, packing.pack(input_ids_RT, longest), packing.lengths_R, first)
        else:
            bucket = self.choose_bucket(longest).value
            ids, more = packing.pack(input_ids_RT, bucket), []
            if features is not None:
                more = features.inputs(packing, bucket, self._program.graphs[self._score[bucket]])
            read = self.prefill if num_logits == 1 else self.score
            packed = read(group, ids, packing.lengths_R, more)
        return take_columns(packed, packing.index_RT, num_logits, num_skipped)

    def prefill(self, group: Group, ids_RT: torch.Tensor, lengths_R: torch.Tensor, more: list[torch.Tensor]) -> Results:
        """Read packed prompts of a bucket's length; return results [R, 1, ...] of the last of so many tokens."""
        inputs = [ids_RT, _positions(ids_RT), *self._counts(lengths_R), *more, (lengths_R - 1).clamp(min=0)]
        return group.run(self._prefill[ids_RT.shape[1]], inputs)

    def score(self, group: Group, ids_RT: torch.Tensor, lengths_R: torch.Tensor, more: list[torch.Tensor]) -> Results:
        """Read packed prompts of a bucket's length; return results [R, T, ...] of every token."""
        inputs = [ids_RT, _positions(ids_RT), *self._counts(lengths_R), *more]
        return group.run(self._score[ids_RT.shape[1]], inputs)

    def decode(
        self, group: Group, ids_R1: torch.Tensor, positions_R1: torch.Tensor, lengths_R: torch.Tensor
    ) -> Results:
        """Add one token to each sequence, through the smallest graph that sees all slots in use; return [R, 1, ...].

        A sequence whose length is 0 gets padding.
        """
        num_used = int(positions_R1.max()) + 1
        bucket = smallest_bucket(num_used, self._decode)
        assert bucket is not None, "whoever packs sequences checks that the cache holds them"
        return self.step(group, self._decode[bucket], ids_R1, positions_R1, lengths_R)

    def steps(self, sequences: Sequences, lengths_R: torch.Tensor) -> Steps:
        """Return decode steps of sequences, of which so many tokens are in the cache."""
        return Steps(self._decode, sequences, lengths_R, self._prepare)

    def _prepare(self, rows: CompiledRows, positions_G1: torch.Tensor) -> list[torch.Tensor]:
        """Return the inputs of a decode graph behind its tokens."""
        import torch

        return [positions_G1, *self._counts(torch.ones_like(positions_G1[:, 0]))]

    def check(self, sequences: Sequences, length: int) -> Check:
        """Return checks of candidates for the only sequence of a cache, of which so many tokens are in it."""
        (group,) = sequences.groups()
        return Check(self, group, length)

    def step(
        self, group: Group, graph: str, ids_RT: torch.Tensor, positions_RT: torch.Tensor, lengths_R: torch.Tensor
    ) -> Results:
        """Run a decode or extend graph on packed tokens, so many of each row; return results [R, T, ...]."""
        return group.run(graph, [ids_RT, positions_RT, *self._counts(lengths_R)])

    def _counts(self, lengths_R: torch.Tensor) -> list[torch.Tensor]:
        """The input that says how many tokens are real, of a program with states that padding would change."""
        return [lengths_R] if self._counts_tokens else []

    def extend(self, group: Group, ids_RT: torch.Tensor, first_R: torch.Tensor, lengths_R: torch.Tensor) -> Results:
        """Add packed tokens, so many of each row, from position `first_R` on in compiled chunks; return [R, T, ...]."""
        import torch

        start, num_tokens, chunks = 0, ids_RT.shape[1], []
        while start < num_tokens:
            length = self.chunk_length(num_tokens - start, int(first_R.max()) + start)
            chunk = ids_RT[:, start : start + length]
            left_R = (lengths_R - start).clamp(min=0)
            if length == 1:
                position = (first_R[:, None] + start).clamp(max=self.num_slots - 1)
                chunks.append(self.decode(group, chunk, position, (left_R > 0).long()))
            else:
                positions = first_R[:, None] + start + torch.arange(length)
                padded = torch.nn.functional.pad(chunk, (0, length - chunk.shape[1]))
                results = self.step(group, self._extend[length], padded, positions, left_R.clamp(max=length))
                chunks.append({name: part[:, : chunk.shape[1]] for name, part in results.items()})
            start += length
        return _joined(chunks)

    def chunk_length(self, num_left: int, first: int) -> int:
        """Return how many tokens to add at once from a position on."""
        return chunk_length(self._extend, num_left=num_left, room=self.num_slots - first)

    def _in_chunks(
        self, group: Group, ids_RT: torch.Tensor, lengths_R: torch.Tensor, first: int
    ) -> tuple[Results, int]:
        """Read prompts longer than the largest bucket: that bucket, then compiled chunks.

        Return results that include column `first`, and how many columns before them were left out.
        """
        import torch

        bucket = self.chunks_from
        head, head_lengths_R = ids_RT[:, :bucket], lengths_R.clamp(max=bucket)
        read = self.score if first < bucket else self.prefill
        results = read(group, head, head_lengths_R, [])
        if first >= bucket:
            results = {name: part for name, part in results.items() if is_of_layer(name)}
        first_R, tail_lengths_R = torch.full((len(head),), bucket), (lengths_R - bucket).clamp(min=0)
        tail = self.extend(group, ids_RT[:, bucket:], first_R, tail_lengths_R)
        return _joined([results, tail]), 0 if first < bucket else bucket


def take_columns(packed: Results, index_RT: torch.Tensor, num_last: int, num_skipped: int = 0) -> Results:
    """Return results [R, T, ...] of columns of a padded batch.

    Args:
        packed: results of packed rows: of all tokens, or of the last one.
        index_RT: column in the packed rows of each column of the batch.
        num_last: number of last columns to return; 0 for all. Hidden states of layers are returned of all.
        num_skipped: first columns of the packed rows that have only hidden states of layers.
    """
    last_RT = index_RT[:, -num_last:] - num_skipped

    def taken(name: str, part: torch.Tensor) -> torch.Tensor:
        if num_last == 1 and part.shape[1] == 1 and not is_of_layer(name):
            return part
        index = index_RT if is_of_layer(name) else last_RT
        return part.gather(1, index[:, :, None].expand(-1, -1, part.shape[-1]))

    return {name: taken(name, part) for name, part in packed.items()}


def _joined(chunks: Sequence[Results]) -> Results:
    import torch

    if len(chunks) == 1:
        return chunks[0]
    *_, last = chunks
    return {name: torch.cat([part[name] for part in chunks if name in part], 1) for name in last}


def _positions(ids_RT: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.arange(ids_RT.shape[1]).expand(ids_RT.shape[0], -1)


class Check:
    """Calls that add several tokens to one sequence, some of which may be replaced later."""

    def __init__(self, decoder: Decoder, group: Group, length: int) -> None:
        self._decoder, self._group, self._length = decoder, group, length

    def room(self, num_new: int) -> int:
        """Return how many candidates a call takes behind a token, if so many tokens are new before it."""
        num_left = self._decoder.num_slots - self._length - num_new
        # A compiled chunk is never cut at the end of the cache.
        return self._decoder.extend_length - 1 if num_left >= self._decoder.extend_length else 0

    def __call__(self, tokens: Sequence[int], num_new: int) -> Results:
        """Add tokens behind the first `num_new` new ones; return results [1, tokens, ...]."""
        import torch

        ids_1T, first = torch.tensor([tokens]), self._length + num_new
        lengths_1 = torch.tensor([len(tokens)])
        if len(tokens) == 1:
            return self._decoder.decode(self._group, ids_1T, torch.tensor([[first]]), lengths_1)
        return self._decoder.extend(self._group, ids_1T, torch.tensor([first]), lengths_1)
