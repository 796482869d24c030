"""The quick processors score as transformers' own do."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    MinLengthLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

from optimum_neuron.modeling.suppression import quick_processors

TOKENS = [3, 7, 7, 40]
"""One of them twice, one beyond the vocabulary."""


@pytest.mark.parametrize("length", [1, 2, 3])
def test_scores_match_transformers(length):
    expected = [SuppressTokensLogitsProcessor(TOKENS), SuppressTokensAtBeginLogitsProcessor(TOKENS, 2)]
    ids, scores = torch.zeros(2, length, dtype=torch.int64), torch.randn(2, 20)
    before = scores.clone()
    for own, quick in zip(expected, quick_processors(expected), strict=True):
        assert torch.equal(quick(ids, scores), own(ids, scores))
        assert torch.equal(scores, before), "the scores that were given stay"


def test_begin_index_can_move():
    (quick,) = quick_processors([SuppressTokensAtBeginLogitsProcessor(TOKENS, 2)])
    quick.set_begin_index(3)
    scores = torch.zeros(1, 20)
    assert torch.isfinite(quick(torch.zeros(1, 2), scores)).all()
    assert not torch.isfinite(quick(torch.zeros(1, 3), scores)).all()


def test_other_processors_are_unchanged():
    other = MinLengthLogitsProcessor(3, 2)
    assert quick_processors([other]) == [other]
    assert quick_processors(None) is None
