"""Speculative decoding: a small model proposes tokens, a large one checks them at once.

    target.enable_speculative_decoder(4)
    generator = SpeculativeGenerator(draft, target, 4)
    tokens = generator.sample(input_ids, sequence_length=128)

With `GreedyTokenAcceptor`, tokens are those of the target alone. Otherwise they follow the target's distribution
(Leviathan et al., 2023, algorithm 1).

Shape legend: C columns, K proposed tokens, V vocabulary.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from ..errors import ConfigError, ShapeError
from ..modeling import EagleDraft, require_vocabulary
from .config import GenerationConfig
from .eagle import eagle_answer, is_eagle_pair, load_eagle
from .model import NeuronModelBase
from .positions import left_mask

logger = logging.getLogger(__name__)

Acceptor = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""From proposed tokens [K] and the logits of draft [K, V] and target [K + 1, V] to the tokens that are kept."""


class DefaultTokenAcceptor:
    """Keeps proposals so that results follow the target's distribution."""

    def __call__(
        self, tokens_K: torch.Tensor, draft_logits_KV: torch.Tensor, target_logits_KV: torch.Tensor
    ) -> torch.Tensor:
        """Return the accepted proposals, and one more token of the target."""
        draft_KV, target_KV = draft_logits_KV.softmax(-1), target_logits_KV.softmax(-1)
        for number, token in enumerate(tokens_K.tolist()):
            if torch.rand(()) * draft_KV[number, token] >= target_KV[number, token]:
                left_V = (target_KV[number] - draft_KV[number]).clamp(min=0)
                left_V = left_V if left_V.sum() > 0 else target_KV[number]
                return torch.cat([tokens_K[:number], torch.multinomial(left_V, 1)])
        return torch.cat([tokens_K, torch.multinomial(target_KV[-1], 1)])


class GreedyTokenAcceptor:
    """Keeps proposals that are the target's likeliest tokens."""

    def __call__(
        self, tokens_K: torch.Tensor, draft_logits_KV: torch.Tensor, target_logits_KV: torch.Tensor
    ) -> torch.Tensor:
        """Return the accepted proposals, and the target's next token."""
        likeliest = target_logits_KV.argmax(-1)
        num_equal = int((likeliest[: len(tokens_K)] == tokens_K).long().cumprod(0).sum())
        return torch.cat([tokens_K[:num_equal], likeliest[num_equal : num_equal + 1]])


class SpeculativeGenerator:
    """Draft and target, both compiled.

    Args:
        draft: the model that proposes.
        target: the model that checks; `enable_speculative_decoder` was called with at least `k`.
        k: proposals of a check.
        acceptor: which proposals are kept.
    """

    def __init__(
        self, draft: NeuronModelBase, target: NeuronModelBase, k: int = 4, acceptor: Acceptor | None = None
    ) -> None:
        require_vocabulary(draft.config.vocab_size, target.config.vocab_size)
        self.draft, self.target, self.k = draft, target, k
        self.acceptor = acceptor or DefaultTokenAcceptor()

    def sample(
        self,
        input_ids: torch.Tensor,
        sequence_length: int,
        start_ids: torch.Tensor | None = None,
        eos_token_id: int | None = None,
        pad_token_id: int = 0,
        attention_mask: torch.Tensor | None = None,
        streamer: Any = None,
    ) -> torch.Tensor:
        """Return the prompts with their answers [rows, at most `sequence_length`].

        Several rows run one after the other, as their numbers of accepted tokens differ.

        Args:
            input_ids: prompts [rows, columns].
            sequence_length: tokens of the longest result, prompt included.
            start_ids: number of padding tokens on the left of each row.
            eos_token_id: token that ends an answer; None: those of the target's configuration.
            pad_token_id: fills rows that are shorter than the longest.
            attention_mask: 1 for tokens, 0 for padding on the left or on the right, in place of `start_ids`.
            streamer: gets a prompt, and the tokens of each check by `put`, and `end`; for one row.

        Raises:
            ConfigError: a streamer is for several rows, or `sequence_length` is less than a prompt has.
            ShapeError: a prompt is too long, or padding does not fit it.
        """
        if streamer is not None and len(input_ids) > 1:
            raise ConfigError(
                f"A streamer takes one sequence, not {len(input_ids)}.",
                hint="Call sample for each prompt, or leave streamer out.",
                option="streamer",
                num_rows=len(input_ids),
            )
        for model in self._models:
            sequence_length = model.length_with_room(input_ids[:1], sequence_length)
        prompts, starts = _without_padding(input_ids, start_ids, attention_mask)
        ends = self.target.end_tokens(eos_token_id)
        rows = [
            self._row(row, ids[None], start, sequence_length, ends, streamer)
            for row, (ids, start) in enumerate(zip(prompts, starts, strict=True))
        ]
        return pad_sequence(rows, batch_first=True, padding_value=pad_token_id)

    @property
    def _models(self) -> Sequence[NeuronModelBase]:
        """The models that have to have room for a sequence."""
        return self.target, self.draft

    def _row(
        self, row: int, ids: torch.Tensor, start: int, sequence_length: int, ends: list[int], streamer: Any
    ) -> torch.Tensor:
        """Return one prompt with its answer."""
        start_ids = torch.tensor([start])
        self.draft.logits(ids, None, start_ids)
        logits_V = self._scores(self.target, row, self.target.logits(ids, None, start_ids)[0, -1:])[0]
        if streamer is not None:
            streamer.put(ids)
        tokens = self._first(logits_V)
        while True:
            is_end = torch.isin(tokens, torch.tensor(ends, dtype=torch.long))
            if is_end.any():
                tokens = tokens[: int(is_end.long().argmax()) + 1]
            tokens = tokens[: max(0, sequence_length - ids.shape[1])]
            ids = torch.cat([ids, tokens[None]], 1)
            if streamer is not None and len(tokens):
                streamer.put(tokens[None])
            if is_end.any() or ids.shape[1] >= sequence_length:
                break
            tokens = self._round(row, ids, min(self.k, sequence_length - ids.shape[1]))
        if streamer is not None:
            streamer.end()
        return ids[0]

    def _scores(self, model: NeuronModelBase, row: int, logits_KV: torch.Tensor) -> torch.Tensor:
        """Return the logits whose softmax tokens of a row are drawn from."""
        return logits_KV

    @property
    def _is_greedy(self) -> bool:
        return isinstance(self.acceptor, GreedyTokenAcceptor)

    def _first(self, logits_V: torch.Tensor) -> torch.Tensor:
        return logits_V.argmax(-1, keepdim=True) if self._is_greedy else torch.multinomial(logits_V.softmax(-1), 1)

    def _round(self, row: int, ids_1C: torch.Tensor, num_tokens: int) -> torch.Tensor:
        """Propose, check, and return the new tokens of a row; the newest of `ids` is in no cache yet."""
        column, proposals, draft_logits = ids_1C.shape[1] - 1, [ids_1C[0, -1:]], []
        # A draft may be behind by the last accepted proposal, which it never read.
        behind = min(column, self.draft.num_cached)
        for number in range(num_tokens):
            position = column + number
            first = behind if number == 0 else position
            known = torch.cat([ids_1C[0, :-1], *proposals])[first : position + 1]
            logits_V = self.draft.logits(known[None], torch.arange(first, position + 1))[0, -1]
            logits_V = self._scores(self.draft, row, logits_V[None])[0]
            draft_logits.append(logits_V)
            proposals.append(self._first(logits_V))
        tokens_K = torch.cat(proposals[1:])
        checked = torch.cat(proposals)[: self._room(column)]
        columns = torch.arange(column, column + len(checked))
        logits_KV = self.target.logits(checked[None], columns, num_logits=len(checked))[0]
        logits_KV = self._scores(self.target, row, logits_KV)
        return self.acceptor(tokens_K[: len(checked) - 1], torch.stack(draft_logits), logits_KV)

    def _room(self, column: int) -> int:
        return self.target.compiled.sequence_length - column


class FusedSpeculativeDecoder(SpeculativeGenerator):
    """Draft and target that `to_neuron` compiles together; tokens are drawn as the target would draw them.

    Args:
        draft: the model that proposes, compiled or not; with `is_eagle_draft=True`, an EAGLE draft, which reads hidden
            states of a target with `is_eagle_target=True`.
        target: the model that checks, compiled or not; if it cannot check `k` tokens yet, it is compiled again. Its
            `on_device_generation` says whether and how tokens are drawn; without it they are the likeliest.
        k: tokens of a check.
        pad_token_id: fills rows that are shorter than the longest.
        eos_token_id: token that ends an answer; None: that of the target's configuration.
        buckets: has no effect: those of the models are used.
        debug: has no effect.
    """

    def __init__(
        self,
        draft: NeuronModelBase,
        target: NeuronModelBase,
        k: int = 2,
        pad_token_id: int = 0,
        eos_token_id: int | None = None,
        buckets: Sequence[int] | None = None,
        debug: bool = False,
    ) -> None:
        generation = target.neuron_config.on_device_generation
        draws = generation is not None and generation.do_sample
        super().__init__(draft, target, k, DefaultTokenAcceptor() if draws else GreedyTokenAcceptor())
        self.pad_token_id, self.eos_token_id = pad_token_id, eos_token_id
        self._is_eagle = is_eagle_pair(draft, target)
        self._eagle: EagleDraft | None = None
        if unused := [name for name, value in {"buckets": buckets, "debug": debug}.items() if value]:
            logger.info("Without effect on a simulated core: %s.", ", ".join(unused))

    def to_neuron(self) -> None:
        """Compile both models, if they are not compiled for it."""
        self.draft.compile()
        self.target.compile_speculative_decoder(self.k)
        if self._is_eagle:
            self._eagle = load_eagle(self.draft, self.target, self.k)

    @property
    def _models(self) -> Sequence[NeuronModelBase]:
        return (self.target,) if self._is_eagle else super()._models

    def update_generation_config(self, generation_config: GenerationConfig) -> None:
        """Change how tokens are drawn; see `NeuronModelBase.update_generation_config`."""
        for model in (self.draft, self.target):
            model.update_generation_config(generation_config)
        self.acceptor = DefaultTokenAcceptor() if generation_config.do_sample else GreedyTokenAcceptor()

    def sample(  # type: ignore[override]  # the vendor's order of arguments
        self,
        input_ids: torch.Tensor,
        start_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        sequence_length: int | None = None,
        streamer: object = None,
    ) -> torch.Tensor:
        """Return the prompts with their answers, as `SpeculativeGenerator.sample` does.

        Args:
            input_ids: prompts [rows, columns].
            start_ids: number of padding tokens on the left of each row.
            attention_mask: 1 for tokens, 0 for padding on the left or on the right, in place of `start_ids`.
            sequence_length: tokens of the longest result, prompt included; None: the compiled length.
            streamer: gets a prompt, and the tokens of each check by `put`, and `end`; for one row.
        """
        length = sequence_length or self.target.compiled.sequence_length
        return super().sample(
            input_ids, length, start_ids, self.eos_token_id, self.pad_token_id, attention_mask, streamer
        )

    def _row(
        self, row: int, ids: torch.Tensor, start: int, sequence_length: int, ends: list[int], streamer: Any
    ) -> torch.Tensor:
        if not self._is_eagle:
            return super()._row(row, ids, start, sequence_length, ends, streamer)
        if self._eagle is None:
            message = "The EAGLE draft is not compiled."
            raise ConfigError(message, hint="Call FusedSpeculativeDecoder.to_neuron() first.", option="is_eagle_draft")
        sampling = self.target.generation_sampling
        drawn = None if self._is_greedy or sampling is None else sampling.of_row(row)
        settings = {"max_length": sequence_length, "eos_token_id": ends or -1, "pad_token_id": self.pad_token_id}
        return eagle_answer(self.target, self._eagle, ids, start, drawn, streamer=streamer, **settings)

    def _scores(self, model: NeuronModelBase, row: int, logits_KV: torch.Tensor) -> torch.Tensor:
        """Logits of the tokens that the filters of a model's generation configuration leave."""
        sampling = model.generation_sampling
        if self._is_greedy or sampling is None:
            return logits_KV
        return sampling.of_row(row).probabilities(logits_KV).log()


def _without_padding(
    input_ids: torch.Tensor, start_ids: torch.Tensor | None, attention_mask: torch.Tensor | None
) -> tuple[list[torch.Tensor], list[int]]:
    """Return the prompts without padding on the right, and the number of padding tokens on their left."""
    ids = input_ids.long()
    if attention_mask is None:
        return list(ids), left_mask(ids, start_ids).argmax(1).tolist()
    mask = torch.as_tensor(attention_mask).long()
    # Scripts also pass the numbers of the sequences.
    numbers = [mask.argmax(1).tolist(), list(range(len(ids)))] if mask.shape == ids.shape else []
    is_other = start_ids is not None and torch.as_tensor(start_ids).reshape(-1).tolist() not in numbers
    if mask.shape != ids.shape or is_other or bool((mask.sum(1) == 0).any()):
        raise ShapeError(
            f"attention_mask {list(mask.shape)} does not fit prompts {list(ids.shape)} and start_ids.",
            hint="Pass 1 for each token and 0 for padding, and leave start_ids out.",
            shape=list(mask.shape),
            expected=list(ids.shape),
        )
    lengths = [ids.shape[1] - int(row.flip(0).argmax()) for row in mask]
    return [row[:length] for row, length in zip(ids, lengths, strict=True)], mask.argmax(1).tolist()
