"""Helpers of the tests of models: logits within rounding, and generation by two models from one seed."""

from __future__ import annotations

from typing import Any

import torch
from transformers import set_seed

from tests.tiny import NUM_BYTE_TOKENS


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Compare logits within float32's rounding."""
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


def random_ids(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    """Return token IDs of the byte-level tokenizer."""
    return torch.randint(3, NUM_BYTE_TOKENS, (rows, columns), generator=torch.Generator().manual_seed(seed))


def both(runners: Any, inputs: dict[str, Any], **options: Any) -> tuple[list[Any], list[Any]]:
    """Generate with both models, from the same seed, and return lists of tokens."""
    results = []
    for runner in runners:
        set_seed(0)
        results.append(runner.generate(**inputs, **options).tolist())
    return results[0], results[1]
