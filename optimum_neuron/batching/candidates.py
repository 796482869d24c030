"""Sampling from the largest logits only, with the tokens that transformers picks from all of them.

Temperature, top-k, and top-p remove all but a few tokens, and sorting a whole vocabulary to find these takes a tenth of
a decode step of a small model. Here, transformers' temperature and top-k see the largest logits only; the rest is
computed in float64. A token counts if rounding cannot change it; otherwise, `pick` returns None, the random stream is
as before, and the caller takes transformers' way.

    sampler = candidate_sampler(processors)
    if not isinstance(sampler, str):        # the reason why all logits are needed
        tokens_R = sampler.pick(values_RK, tokens_RK, vocabulary)

Shape legend: R rows, K largest logits in descending order, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

MARGIN = 1e-5
"""Sums of probabilities that differ less may be in another order in float32, whose errors are a tenth of it."""
_MARGIN_OF_DRAWS = 1e-4
_MORE = 32
"""Candidates beyond `top_k`: logits that equal the last one that top-k leaves stay too."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CandidateSampler:
    """Samples tokens after temperature, top-k, and top-p."""

    before: Sequence[Any]
    """Temperature and top-k of transformers, in the order of its processors."""
    top_k: int
    """Tokens that top-k leaves."""
    top_p: TopPLogitsWarper | None

    def pick_from(
        self, logits_RV: torch.Tensor, generator: torch.Generator = torch.default_generator
    ) -> torch.Tensor | None:
        """Return the tokens drawn from all logits, or None; see `pick`."""
        _, vocabulary = logits_RV.shape
        top = logits_RV.topk(min(self.top_k + _MORE, vocabulary))
        return self.pick(top.values, top.indices, vocabulary, generator)

    def pick(
        self,
        values_RK: torch.Tensor,
        tokens_RK: torch.Tensor,
        vocabulary: int,
        generator: torch.Generator = torch.default_generator,
    ) -> torch.Tensor | None:
        """Return the tokens that `torch.multinomial` draws from all logits, or None where rounding decides.

        Args:
            values_RK: the largest logits of each row, in descending order.
            vocabulary: number of all logits of a row.
            generator: the random stream, which goes on as in `multinomial`; after None, it is as before.
        """
        for processor in self.before:
            values_RK = processor(None, values_RK)
        values = values_RK.double().numpy()
        if not np.isfinite(values[:, 0]).all() or not np.isneginf(values[:, -1]).all():
            return None  # more tokens than the candidates may be as likely as the last one that is left
        weights = np.exp(values - values[:, :1])
        if self.top_p is not None and not _remove_tail(values, weights, self.top_p):
            return None
        before = generator.get_state()
        draws = _draws(tokens_RK, vocabulary, generator)
        scores = weights / draws
        *_, second, first = np.sort(scores).T
        if (second > first * (1 - _MARGIN_OF_DRAWS)).any():
            generator.set_state(before)
            return None
        return tokens_RK.gather(1, torch.from_numpy(scores.argmax(1))[:, None])[:, 0]


def candidate_sampler(processors: Sequence[Any]) -> CandidateSampler | str:
    """Return the sampler that stands for transformers' processors, or the reason why they need all logits."""
    kinds = [type(one) for one in processors]
    order = [kind for kind in (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper) if kind in kinds]
    if TopKLogitsWarper not in kinds:
        return "top_k=0 leaves all tokens"
    if kinds != order:
        others = [kind.__name__ for kind in kinds if kind not in order]
        return f"{', '.join(others or [kind.__name__ for kind in kinds])} reads all logits"
    *before, last = processors
    top_p = last if isinstance(last, TopPLogitsWarper) else None
    before = before if top_p is not None else [*before, last]
    if any(getattr(one, "filter_value", -np.inf) != -np.inf for one in processors):
        return "filter_value leaves all tokens"
    return CandidateSampler(before=before, top_k=before[-1].top_k, top_p=top_p)


def _remove_tail(values: np.ndarray, weights: np.ndarray, top_p: TopPLogitsWarper) -> bool:
    """Set the weights of tokens to 0 that top-p removes; return False where rounding decides about one."""
    tails = weights[:, ::-1].cumsum(1)[:, ::-1] / weights.sum(1, keepdims=True)
    first, limit = top_p.min_tokens_to_keep, 1 - top_p.top_p
    removed = tails <= limit
    removed[:, :first] = False
    is_close = (np.abs(tails - limit) < MARGIN) & (weights > 0)
    is_tie = (values[:, 1:] == values[:, :-1]) & (removed[:, 1:] != removed[:, :-1])
    weights[removed] = 0
    return not (is_close[:, first:].any() or is_tie.any())


def _draws(tokens_RK: torch.Tensor, vocabulary: int, generator: torch.Generator) -> np.ndarray:
    """Return what `torch.multinomial` divides the probabilities of these tokens by, one draw for each logit."""
    shape = (len(tokens_RK), vocabulary)
    if not _draws_uniforms():
        return torch.empty(shape).exponential_(generator=generator).gather(1, tokens_RK).numpy()
    uniforms = torch.empty(shape, dtype=torch.float64).uniform_(generator=generator).gather(1, tokens_RK)
    return -np.log1p(-uniforms.numpy())


@functools.cache
def _draws_uniforms() -> bool:
    """Return whether `exponential_` turns one uniform number into each of its own; with Intel's MKL it does not.

    The logarithms of all logits but a few would be for nothing.
    """
    one, other = torch.Generator(), torch.Generator()
    expected = torch.empty(64).exponential_(generator=one)
    uniforms = torch.empty(64, dtype=torch.float64).uniform_(generator=other)
    return torch.allclose(-torch.log1p(-uniforms).float(), expected, rtol=1e-6, atol=0) and torch.equal(
        one.get_state(), other.get_state()
    )
