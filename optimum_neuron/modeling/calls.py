"""Which entry points of a compiled decoder a packed batch goes through, and in which pieces.

It knows nothing of generation or of padded batches' masks: `causal_lm` packs rows, this module fills them up to
compiled shapes and runs the graphs.

    logits = DecoderCalls(loaded, config).run(input_ids, packing, num_past=0, wanted=1, state=state)
"""

from __future__ import annotations

import dataclasses

import torch

from ..buckets.choose import choose_bucket
from ..configuration import NeuronConfig
from ..core import Choice
from ..runtime.loaded import LoadedProgram, State
from .packing import Packing


def choose_prompt_bucket(num_tokens: int, buckets: tuple[int, ...]) -> Choice[int]:
    """Say which bucket holds a prompt, and why.

    Raises:
        ShapeError: it is longer than the largest bucket.
    """
    measure = f"{num_tokens} tokens"
    do = "shorten the prompt or export with larger prefill_buckets or sequence_length"
    return choose_bucket(num_tokens, buckets, measure=measure, asked=f"a prompt of {measure}", do=do)


def run_rows(
    loaded: LoadedProgram, graph: str, rows: list[torch.Tensor], state: State, *shared: torch.Tensor
) -> torch.Tensor:
    """What `run_all` gives for an entry point of one result."""
    return next(iter(run_all(loaded, graph, rows, state, *shared).values()))


def run_all(
    loaded: LoadedProgram, graph: str, rows: list[torch.Tensor], state: State, *shared: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Pad rows to the compiled batch with the first one, run an entry point, drop the padding from its results."""
    num_rows = rows[0].shape[0]
    missing = next(iter(loaded.program.graphs[graph].inputs.values())).shape[0] - num_rows
    if missing:
        rows = [torch.cat((tensor, tensor[:1].expand(missing, *tensor.shape[1:]))) for tensor in rows]
    results = loaded.run(graph, [*rows, *shared], state)
    return {name: result[:num_rows] for name, result in results.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptImages:
    """Features of images, and where the columns of a padded batch read them."""

    index_RT: torch.Tensor
    """0 for a token of text, 1 + i for the row's feature i."""
    features_RFD: torch.Tensor
    """Features of each row's images, one after the other; rows with fewer end with zeros."""

    def rows(self, rows: slice) -> PromptImages:
        """The part of some rows."""
        return PromptImages(index_RT=self.index_RT[rows], features_RFD=self.features_RFD[rows])

    def inputs(self, packing: Packing, length: int, num_features: int) -> list[torch.Tensor]:
        """What a graph of prompts of `length` tokens takes, which has room for so many features."""
        missing = num_features - self.features_RFD.shape[1]
        # Negative padding cuts: a short prompt has no tokens for what is cut off.
        return [packing.pack(self.index_RT, length), torch.nn.functional.pad(self.features_RFD, (0, 0, 0, missing))]


class DecoderCalls:
    """Runs packed rows through prefill, score, decode and extend graphs."""

    def __init__(self, loaded: LoadedProgram, config: NeuronConfig) -> None:
        assert config.prefill_buckets and config.decode_buckets and config.sequence_length, "resolved configuration"
        self._loaded = loaded
        self._prefill_buckets, self._decode_buckets = config.prefill_buckets, config.decode_buckets
        self._extend_length, self._num_slots = config.extend_length, config.sequence_length

    def run(
        self,
        input_ids_RT: torch.Tensor,
        packing: Packing,
        num_past: int,
        wanted: int,
        state: State,
        images: PromptImages | None = None,
    ) -> torch.Tensor:
        """Return logits [R, kept columns, V] of rows that share one set of state.

        Args:
            input_ids_RT: new columns of the padded batch.
            packing: where they go.
            num_past: columns of the padded batch that are in the cache.
            wanted: how many of the last columns to keep; 0 for all.
            state: the cache, written in place.
            images: those of a prompt, for a model that was compiled with them.
        """
        num_rows, num_tokens = input_ids_RT.shape
        if num_tokens == 1 and num_past and bool(packing.valid_RT.all()):
            return self._decode(input_ids_RT, packing.positions_RT, state)
        longest = max(int(packing.lengths_R.max()), 1)
        index = packing.index_RT[:, -wanted:] if wanted else packing.index_RT
        if num_past:
            packed = self._extend(packing.pack(input_ids_RT, longest), packing.first_R, state)
        elif longest > self._prefill_buckets[-1] and images is None:
            first = int(index.min())
            packed, num_skipped = self._in_chunks(packing.pack(input_ids_RT, longest), first, state)
            index = index - num_skipped
        else:
            bucket = choose_prompt_bucket(longest, self._prefill_buckets).value
            positions = torch.arange(bucket).expand(num_rows, -1)
            inputs = [packing.pack(input_ids_RT, bucket), positions]
            if images is not None:
                room = self._loaded.program.graphs[f"score_{bucket}"].inputs["image_features"].shape[1]
                inputs += images.inputs(packing, bucket, room)
            if wanted == 1:
                last = (packing.lengths_R - 1).clamp(min=0)
                return run_rows(self._loaded, f"prefill_{bucket}", [*inputs, last], state)
            packed = run_rows(self._loaded, f"score_{bucket}", inputs, state)
        return packed.gather(1, index[:, :, None].expand(-1, -1, packed.shape[-1]))

    def _in_chunks(self, ids_RT: torch.Tensor, first: int, state: State) -> tuple[torch.Tensor, int]:
        """Run a packed prompt that is longer than the largest bucket: that bucket, then compiled chunks.

        Args:
            ids_RT: packed tokens.
            first: first column whose logits are needed.
            state: the cache, written in place.

        Returns:
            Logits, and how many columns before them were left out.
        """
        num_rows, bucket = ids_RT.shape[0], self._prefill_buckets[-1]
        inputs = [ids_RT[:, :bucket], torch.arange(bucket).expand(num_rows, -1)]
        if first < bucket:
            head = [run_rows(self._loaded, f"score_{bucket}", inputs, state)]
        else:
            head, last = [], torch.full((num_rows,), bucket - 1)
            run_rows(self._loaded, f"prefill_{bucket}", [*inputs, last], state)
        tail = self._extend(ids_RT[:, bucket:], torch.full((num_rows,), bucket), state)
        return torch.cat([*head, tail], 1), 0 if head else bucket

    def _decode(self, ids_R1: torch.Tensor, positions_R1: torch.Tensor, state: State) -> torch.Tensor:
        """One token of each row, through the smallest graph that sees all slots in use."""
        num_used = int(positions_R1.max()) + 1
        bucket = next(bucket for bucket in self._decode_buckets if num_used <= bucket)
        return run_rows(self._loaded, f"decode_{bucket}", [ids_R1, positions_R1], state)

    def _extend(self, ids: torch.Tensor, first_R: torch.Tensor, state: State) -> torch.Tensor:
        """Add packed tokens to rows that are in the cache, a compiled chunk at a time."""
        length, limit = self._extend_length, self._num_slots
        chunks = []
        for start in range(0, ids.shape[1], length):
            chunk = ids[:, start : start + length]
            positions = first_R[:, None] + start + torch.arange(length)
            num_over = int(positions.max()) - limit + 1
            if num_over > 0 or length == 1:
                # A compiled chunk would reach past the cache: the last tokens go one by one.
                for column in range(chunk.shape[1]):
                    at = (first_R[:, None] + start + column).clamp(max=limit - 1)
                    chunks.append(self._decode(chunk[:, column : column + 1], at, state))
            else:
                padded = torch.nn.functional.pad(chunk, (0, length - chunk.shape[1]))
                logits = run_rows(self._loaded, f"extend_{length}", [padded, positions], state)
                chunks.append(logits[:, : chunk.shape[1]])
        return torch.cat(chunks, 1)
