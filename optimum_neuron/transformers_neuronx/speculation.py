"""Speculative decoding: a small model proposes tokens, a large one checks them at once.

    target.enable_speculative_decoder(4)
    generator = SpeculativeGenerator(draft, target, 4)
    tokens = generator.sample(input_ids, sequence_length=128)

With `GREEDY`, tokens are those of the target alone. Otherwise they follow the target's distribution (Leviathan et al.,
2023, algorithm 1).

Shape legend: C columns, K proposed tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import ConfigError
from .model import NeuronModelBase

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
    """Draft and target, both compiled, for one sequence.

    Args:
        draft: the model that proposes.
        target: the model that checks; `enable_speculative_decoder` was called with at least `k`.
        k: proposals of a check.
        acceptor: which proposals are kept.
    """

    def __init__(
        self, draft: NeuronModelBase, target: NeuronModelBase, k: int = 4, acceptor: Acceptor | None = None
    ) -> None:
        self.draft, self.target, self.k = draft, target, k
        self.acceptor = acceptor or DefaultTokenAcceptor()

    def sample(
        self,
        input_ids: torch.Tensor,
        sequence_length: int,
        start_ids: torch.Tensor | None = None,
        eos_token_id: int | None = None,
        streamer: Any = None,
    ) -> torch.Tensor:
        """Return the prompt with its answer [1, at most `sequence_length`].

        Args:
            input_ids: one prompt [1, columns].
            sequence_length: tokens of the result, prompt included.
            start_ids: number of padding tokens on the left.
            eos_token_id: token that ends the answer; None: that of the target's configuration.
            streamer: gets the tokens of each check by `put`, and `end`.

        Raises:
            ConfigError: there are several prompts.
        """
        if len(input_ids) != 1:
            raise ConfigError(
                f"Speculation takes one sequence, not {len(input_ids)}.",
                hint="Call sample for each prompt.",
                num_rows=len(input_ids),
            )
        ends = self.target.end_tokens(eos_token_id)
        self.draft.logits(input_ids, None, start_ids)
        logits_V = self.target.logits(input_ids, None, start_ids)[0, -1]
        newest = self._first(logits_V)
        ids = torch.cat([input_ids.long(), newest[None]], 1)
        if streamer is not None:
            streamer.put(newest[None])
        while ids.shape[1] < sequence_length and int(ids[0, -1]) not in ends:
            tokens = self._round(ids, min(self.k, sequence_length - ids.shape[1]))
            is_end = torch.isin(tokens, torch.tensor(ends, dtype=torch.long))
            if is_end.any():
                tokens = tokens[: int(is_end.long().argmax()) + 1]
            tokens = tokens[: sequence_length - ids.shape[1]]
            ids = torch.cat([ids, tokens[None]], 1)
            if streamer is not None:
                streamer.put(tokens[None])
        if streamer is not None:
            streamer.end()
        return ids

    @property
    def _is_greedy(self) -> bool:
        return isinstance(self.acceptor, GreedyTokenAcceptor)

    def _first(self, logits_V: torch.Tensor) -> torch.Tensor:
        return logits_V.argmax(-1, keepdim=True) if self._is_greedy else torch.multinomial(logits_V.softmax(-1), 1)

    def _round(self, ids_1C: torch.Tensor, num_tokens: int) -> torch.Tensor:
        """Propose, check, and return the new tokens; the newest of `ids` is in no cache yet."""
        column, proposals, draft_logits = ids_1C.shape[1] - 1, [ids_1C[0, -1:]], []
        # A draft may be behind by the last accepted proposal, which it never read.
        behind = min(column, self.draft.num_cached)
        for number in range(num_tokens):
            position = column + number
            first = behind if number == 0 else position
            known = torch.cat([ids_1C[0, :-1], *proposals])[first : position + 1]
            logits_V = self.draft.logits(known[None], torch.arange(first, position + 1))[0, -1]
            draft_logits.append(logits_V)
            proposals.append(self._first(logits_V))
        tokens_K = torch.cat(proposals[1:])
        checked = torch.cat(proposals)[: self._room(column)]
        columns = torch.arange(column, column + len(checked))
        logits_KV = self.target.logits(checked[None], columns, num_logits=len(checked))[0]
        return self.acceptor(tokens_K[: len(checked) - 1], torch.stack(draft_logits), logits_KV)

    def _room(self, column: int) -> int:
        return self.target.compiled.sequence_length - column


class FusedSpeculativeDecoder(SpeculativeGenerator):
    """Draft and target that `to_neuron` compiles together; tokens are those that the target would pick.

    Args:
        draft: the model that proposes; it is not compiled yet.
        target: the model that checks; it is not compiled yet. Its `on_device_generation` says whether tokens are drawn.
        k: tokens of a check.
        pad_token_id: fills nothing here: there is one sequence.
        eos_token_id: token that ends the answer; None: that of the target's configuration.
    """

    def __init__(
        self,
        draft: NeuronModelBase,
        target: NeuronModelBase,
        k: int = 2,
        pad_token_id: int = 0,
        eos_token_id: int | None = None,
    ) -> None:
        generation = target.neuron_config.on_device_generation
        draws = generation is not None and generation.do_sample
        super().__init__(draft, target, k, DefaultTokenAcceptor() if draws else GreedyTokenAcceptor())
        self.pad_token_id, self.eos_token_id = pad_token_id, eos_token_id

    def to_neuron(self) -> None:
        """Compile both models."""
        self.target.enable_speculative_decoder(self.k)
        self.draft.to_neuron()
        self.target.to_neuron()

    def sample(  # type: ignore[override]  # the vendor's order of arguments
        self,
        input_ids: torch.Tensor,
        start_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        sequence_length: int | None = None,
        streamer: object = None,
    ) -> torch.Tensor:
        """Return the prompt with its answer [1, at most `sequence_length`].

        Args:
            input_ids: one prompt [1, columns].
            start_ids: number of padding tokens on the left.
            attention_mask: the same as a mask [1, columns].
            sequence_length: tokens of the result, prompt included; None: the compiled length.
            streamer: gets the tokens of each check by `put`, and `end`.
        """
        if attention_mask is not None and start_ids is None:
            start_ids = attention_mask.long().argmax(1)
        length = sequence_length or self.target.compiled.sequence_length
        return super().sample(input_ids, length, start_ids, self.eos_token_id, streamer)
