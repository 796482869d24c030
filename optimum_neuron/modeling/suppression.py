"""Whisper's logits processors that suppress tokens, with the tokens looked up once.

transformers' own search the whole vocabulary in every step, which takes as long as a decode step of a small model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import LogitsProcessor, SuppressTokensAtBeginLogitsProcessor, SuppressTokensLogitsProcessor


class SuppressTokens(SuppressTokensLogitsProcessor):
    """Suppress tokens in every step."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return _without(scores, self.suppress_tokens)


class SuppressTokensAtBegin(SuppressTokensAtBeginLogitsProcessor):
    """Suppress tokens in the first step."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return _without(scores, self.begin_suppress_tokens) if input_ids.shape[-1] == self.begin_index else scores


def _without(scores: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return scores.index_fill(-1, tokens[tokens < scores.shape[-1]].long(), float("-inf"))


def quick_processors(processors: Sequence[LogitsProcessor] | None) -> list[LogitsProcessor] | None:
    """Replace transformers' two processors that search the vocabulary in a list of processors."""
    return None if processors is None else [_quick(processor) for processor in processors]


def _quick(processor: LogitsProcessor) -> LogitsProcessor:
    if type(processor) is SuppressTokensLogitsProcessor:
        return SuppressTokens(processor.suppress_tokens.tolist())
    if type(processor) is SuppressTokensAtBeginLogitsProcessor:
        return SuppressTokensAtBegin(processor.begin_suppress_tokens.tolist(), processor.begin_index)
    return processor
