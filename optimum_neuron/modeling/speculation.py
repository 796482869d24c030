"""Speculation: a draft proposes tokens, one call of the model checks all of them, and those it would have picked stay.

The loop of `token_loop.py` picks every token from the model's own logits, in order. Here those logits come from a check
of several candidates at once: as long as the picked token is the next candidate, its logits are there already. So
tokens are those of plain decoding, also when they are sampled: the random stream is the same.

Shape legend: C columns of tokens so far, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
from transformers.generation import AssistedCandidateGenerator

from ..engine import Check, Draft, SequenceDraft

if TYPE_CHECKING:
    from transformers.generation import CandidateGenerator

    from .cache import NeuronCache

_OF_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")
"""Settings that an assistant does not need: it drafts greedily."""


@dataclasses.dataclass
class Speculation:
    """Candidates of one `generate`, and how many of them the model would have picked.

    >>> print(Speculation(draft="prompt lookup", num_checks=20, num_candidates=100, num_accepted=44))
    prompt lookup: 44 of 100 candidates accepted (44 %), 3.2 tokens per call
    """

    draft: str
    """Source of the candidates."""
    num_checks: int = 0
    """Calls of the model after the prompt."""
    num_candidates: int = 0
    """Proposed tokens."""
    num_accepted: int = 0
    """Proposed tokens that became part of the result."""
    num_rejected: int = 0
    """Checks with a candidate that the model would not have picked."""

    @property
    def acceptance_rate(self) -> float:
        """Share of the candidates that were accepted; 0 if there were none."""
        return self.num_accepted / max(self.num_candidates, 1)

    @property
    def acceptance_probability(self) -> float:
        """Share of the candidates that were accepted if those before them were; `acceptance_rate` of `estimate`."""
        return self.num_accepted / max(self.num_accepted + self.num_rejected, 1)

    @property
    def tokens_per_call(self) -> float:
        """Tokens that a call of the model added: its own, and the accepted candidates."""
        return 1 + self.num_accepted / max(self.num_checks, 1)

    def __str__(self) -> str:
        return (
            f"{self.draft}: {self.num_accepted} of {self.num_candidates} candidates accepted "
            f"({self.acceptance_rate:.0%}), {self.tokens_per_call:.1f} tokens per call"
        ).replace("%", " %")


class GeneratedCandidates(Draft):
    """Candidates of transformers' generators: prompt lookup, or an assistant model."""

    def __init__(self, generator: CandidateGenerator, name: str) -> None:
        self._generator, self.name = generator, name
        if type(generator) is AssistedCandidateGenerator:
            # Its likeliest tokens are accepted most often, and draw nothing from the random stream of the result.
            generator.generation_config.update(do_sample=False, **dict.fromkeys(_OF_SAMPLING))

    def propose(self, ids_1C: torch.Tensor, hidden_NF: torch.Tensor | None) -> list[int]:
        """Return the generator's candidates."""
        ids, _ = self._generator.get_candidates(ids_1C)
        return ids[0, ids_1C.shape[1] :].tolist()


class SpeculativeSteps:
    """Logits after each token of one sequence, from checks of several tokens at once."""

    def __init__(
        self,
        check: Check,
        cache: NeuronCache,
        draft: Draft,
        ids_1C: torch.Tensor,
        mask_1C: torch.Tensor | None,
        max_length: int,
    ) -> None:
        """Begin behind a prompt.

        Args:
            check: adds several tokens to the sequence.
            cache: cache of the sequence.
            draft: proposes candidates.
            ids_1C: the prompt.
            mask_1C: which of its tokens are real; None for all.
            max_length: tokens that the result has at most.
        """
        self.report = Speculation(draft=draft.name)
        self._check, self._cache, self._draft = check, cache, SequenceDraft(draft)
        self._ids_1C, self._max_length = ids_1C, max_length
        self._draft.keep(cache.newest_hidden(0, mask_1C))
        self._num_new, self._columns = 0, cache.columns
        self._candidates: list[int] = []
        self._results: dict[str, torch.Tensor] = {}
        self._place = 0

    def __call__(self, tokens_R: torch.Tensor) -> dict[str, torch.Tensor]:
        """Add the picked token; return the logits [1, 1, V] of the next."""
        token = int(tokens_R[0])
        if self._place < len(self._candidates) and self._candidates[self._place] == token:
            self._place += 1
            self.report.num_accepted += 1
        else:
            self.report.num_rejected += self._place < len(self._candidates)
            self._start(token)
        self._num_new += 1
        self._ids_1C = torch.cat([self._ids_1C, tokens_R[:, None]], 1)
        return {"logits": self._results["logits"][:, self._place : self._place + 1]}

    def _start(self, token: int) -> None:
        """Check a token that no candidate foresaw, and candidates for the ones after it."""
        if self._results:
            self._draft.keep({name: result[0] for name, result in self._results.items()}, self._place + 1)
        ids_1C = torch.cat([self._ids_1C, torch.tensor([[token]])], 1)
        # The last token is never checked: its logits are not needed.
        room = min(self._check.room(self._num_new), self._max_length - ids_1C.shape[1] - 1)
        self._candidates = self._draft.propose(ids_1C, room)
        self._results, self._place = self._check([token, *self._candidates], self._num_new), 0
        self._cache.note_written(self._columns + self._num_new + 1 + len(self._candidates))
        self.report.num_checks += 1
        self.report.num_candidates += len(self._candidates)
