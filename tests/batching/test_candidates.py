"""Tokens picked from the largest logits are those that transformers picks from all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from optimum_neuron.batching import CandidateSampler, candidate_sampler
from optimum_neuron.batching.candidates import _remove_tail

T, K, P = TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper
VOCABULARY = 3000

SETTINGS = {
    "top_k": [K(50)],
    "top_p": [K(20), P(0.5)],
    "temperature": [T(0.7), K(50), P(0.95)],
    "two tokens stay": [T(1.4), K(5), P(0.05, min_tokens_to_keep=2)],
    "one token stays": [K(1)],
}


def logits(seed: int, rows: int = 2) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 2


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("draws_uniforms", [True, False])
def test_tokens_and_random_stream_are_those_of_multinomial(name, draws_uniforms, monkeypatch):
    if not draws_uniforms:
        monkeypatch.setattr("optimum_neuron.batching.candidates._draws_uniforms", lambda: False)
    processors = LogitsProcessorList(SETTINGS[name])
    sampler, num_picked = candidate_sampler(processors), 0
    assert isinstance(sampler, CandidateSampler)
    for seed in range(100):
        logits_RV = logits(seed)
        if seed % 4 == 0:
            logits_RV = logits_RV.bfloat16().float()  # with ties
        ours, theirs = (torch.Generator().manual_seed(seed) for _ in range(2))
        tokens_R = sampler.pick_from(logits_RV, ours)
        if tokens_R is None:
            assert torch.equal(ours.get_state(), theirs.get_state())
            continue
        num_picked += 1
        scores_RV = processors(None, logits_RV)
        assert torch.equal(tokens_R, torch.multinomial(scores_RV.softmax(-1), 1, generator=theirs)[:, 0])
        assert torch.equal(ours.get_state(), theirs.get_state())
    assert num_picked > 70


def test_rounding_that_decides_is_left_to_transformers():
    sampler, logits_RV = candidate_sampler([K(4), P(0.5)]), torch.full((1, VOCABULARY), -9.0)
    logits_RV[0, 7:11] = 1.0
    assert sampler.pick_from(logits_RV) is None, "the sum of two equal probabilities is the limit"
    unequal_RV = torch.full((1, VOCABULARY), -30.0)
    unequal_RV[0, 7:10] = torch.tensor([0.5, 0.3, 0.2]).log()
    assert sampler.pick_from(unequal_RV) is None, "so is that of two others"
    logits_RV[0, 7] = 2.0
    assert sampler.pick_from(logits_RV) is None, "three equal tokens are on both sides of the limit"
    logits_RV[0, 7] = 9.0
    assert sampler.pick_from(logits_RV).tolist() == [7]
    assert candidate_sampler([K(3)]).pick_from(logits_RV[:, 7:40]) is not None
    assert candidate_sampler([K(3)]).pick(torch.ones(1, 8), torch.arange(8)[None], VOCABULARY) is None
    assert sampler.pick_from(logits_RV.fill_(torch.nan)) is None


REASONS = {
    "top_k=0": [T(0.5), P(0.9)],
    "TopPLogitsWarper, TopKLogitsWarper": [P(0.9), K(3)],
    "MinPLogitsWarper reads": [K(3), MinPLogitsWarper(0.1)],
    "filter_value": [K(3, filter_value=-50.0)],
}


@pytest.mark.parametrize("words", REASONS)
def test_other_settings_need_all_logits(words):
    assert words in candidate_sampler(REASONS[words])


@pytest.mark.parametrize(
    ("weights", "top_p", "is_sure"),
    [
        ([0.5, 0.3, 0.2], 0.7, True),
        ([0.5, 0.3, 0.2], 0.8, False),  # the last token is as large as what is removed
        ([0.8, 0.2, 0.0], 1 - 1e-9, True),  # what was removed before decides nothing
    ],
)
def test_sums_at_the_limit_of_top_p_are_unsure(weights, top_p, is_sure):
    values = np.array([[3.0, 2.0, 1.0]])
    assert _remove_tail(values, np.array([weights]), P(top_p)) is is_sure
