"""Sampling on the device: decode graphs return the likeliest tokens beside the logits, and the host reads these only.

The token of greedy decoding is the first of the largest logits, as torch's argmax. For sampling, there are the
`max_topk` largest logits and their tokens: the host draws one of them, because the random stream is its own.

Shape legend: B rows, V vocabulary.
"""

from __future__ import annotations

from typing import Any

from ...engine import SAMPLED
from ...errors import ConfigError
from ...options.configuration import DEFAULT_MAX_TOPK, NeuronConfig


def require_topk(model_config: Any, config: NeuronConfig) -> None:
    """Check that a vocabulary has as many tokens as a step shall return; the default is for every vocabulary."""
    number = config.max_topk or DEFAULT_MAX_TOPK
    vocab_size = getattr(model_config.get_text_config(decoder=True), "vocab_size", number)
    if number > max(vocab_size, DEFAULT_MAX_TOPK):
        message = f"max_topk={number} is more than the {vocab_size} tokens of the vocabulary."
        hint = f"Pass max_topk={DEFAULT_MAX_TOPK}, or another number of at most {vocab_size}."
        raise ConfigError(message, hint=hint, option="max_topk", value=number, vocab_size=vocab_size)


def sampled_outputs(config: NeuronConfig) -> tuple[str, ...]:
    """Return the names of the results that decode graphs of a configuration have behind the others."""
    return SAMPLED if config.on_device_sampling else ()


def with_tokens(results: Any, max_topk: int) -> Any:
    """Return results of a decode step, the logits first, and those of `SAMPLED` behind them."""
    results = results if isinstance(results, tuple) else (results,)
    logits_B1V = results[0].float()
    top = logits_B1V.topk(min(max_topk, logits_B1V.shape[-1]), -1)
    return (*results, logits_B1V.argmax(-1, keepdim=True), top.values, top.indices)
