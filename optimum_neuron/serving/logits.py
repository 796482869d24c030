"""Changes to the logits of one request: OpenAI's and vLLM's parameters that transformers has no processor for.

It does not know HTTP or engines. Every processor sees one row. `LogprobRecorder` comes first in a list, so that it sees
the model's logits, as vLLM reports them.

Shape legend: V vocabulary.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence

import torch
from transformers import LogitsProcessor


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenLogprob:
    """The logarithmic probability of a token, and of the likeliest ones in its place."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    """Likeliest tokens with theirs, falling."""
    rank: int = 1
    """Place of the token among all, by probability; equal ones share the best."""


def token_logprob(logits_V: torch.Tensor, token: int, num_top: int) -> TokenLogprob:
    """Return the logarithmic probabilities in a row of logits."""
    logprobs_V = logits_V.float().log_softmax(-1)
    values, ids = logprobs_V.topk(min(num_top, logprobs_V.numel()))
    top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
    rank = int((logprobs_V > logprobs_V[token]).sum()) + 1
    return TokenLogprob(token=token, logprob=float(logprobs_V[token]), top=top, rank=rank)


class LogprobRecorder(LogitsProcessor):
    """Notes the logarithmic probabilities of an answer; it changes nothing.

    The engine's thread calls it, and another thread takes what it noted. A token is known when the next one is chosen,
    or when the answer is delivered.
    """

    def __init__(self, num_top: int) -> None:
        self._num_top, self._lock = num_top, threading.Lock()
        self._noted: list[TokenLogprob] = []
        self._open: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Note the token that was chosen before, and keep these logits for the next one."""
        with self._lock:
            self._close(int(input_ids[0, -1]))
            self._open = scores[0].clone()
        return scores

    def _close(self, token: int) -> None:
        if self._open is not None:
            self._noted.append(token_logprob(self._open, token, self._num_top))
            self._open = None

    def take(self, start: int, tokens: Sequence[int]) -> list[TokenLogprob]:
        """Return the probabilities of delivered tokens, the first of which has this index in the answer."""
        with self._lock:
            if start + len(tokens) > len(self._noted):
                self._close(tokens[-1])
            return self._noted[start : start + len(tokens)]


class CountPenalty(LogitsProcessor):
    """OpenAI's penalties: subtract from the logits of tokens that the answer has already."""

    def __init__(self, num_prompt: int, *, presence: float, frequency: float) -> None:
        self._num_prompt, self._presence, self._frequency = num_prompt, presence, frequency

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return penalized logits."""
        answer = input_ids[0, self._num_prompt :]
        if not len(answer):
            return scores
        counts_V = torch.bincount(answer, minlength=scores.shape[-1]).to(scores.dtype)
        return scores - counts_V * self._frequency - (counts_V > 0) * self._presence


class LogitBias(LogitsProcessor):
    """Adds to the logits of some tokens; -100 bans one, as OpenAI documents it."""

    def __init__(self, bias: Mapping[int, float]) -> None:
        self._ids = torch.tensor(list(bias))
        self._values = torch.tensor([float("-inf") if value <= -100 else float(value) for value in bias.values()])

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return biased logits."""
        scores = scores.clone()
        scores[0, self._ids] += self._values
        return scores


class AllowedTokens(LogitsProcessor):
    """Bans all tokens but some."""

    def __init__(self, allowed: Sequence[int]) -> None:
        self._ids = torch.tensor(list(allowed))

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return logits with -inf for other tokens."""
        kept = torch.full_like(scores, float("-inf"))
        kept[0, self._ids] = scores[0, self._ids]
        return kept
