"""Sampling on the device: decode graphs return the likeliest tokens beside the logits, and the host reads these only.

The token of greedy decoding is the first of the largest logits, as torch's argmax. For sampling, there are the
`max_topk` largest logits and their tokens: the host draws one of them, because the random stream is its own.

Shape legend: B rows, V vocabulary.
"""

from __future__ import annotations

from typing import Any

from ..configuration import ResolvedNeuronConfig
from ..engine import SAMPLED


def sampled_outputs(config: ResolvedNeuronConfig) -> tuple[str, ...]:
    """Return the names of the results that decode graphs of a configuration have behind the others."""
    return SAMPLED if config.on_device_sampling else ()


def with_tokens(results: Any, max_topk: int | None) -> Any:
    """Return results of a decode step, the logits first, and with `max_topk` those of `SAMPLED` behind them."""
    if max_topk is None:
        return results
    results = results if isinstance(results, tuple) else (results,)
    logits_B1V = results[0].float()
    top = logits_B1V.topk(min(max_topk, logits_B1V.shape[-1]), -1)
    return (*results, logits_B1V.argmax(-1, keepdim=True), top.values, top.indices)
