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

from optimum_neuron.batching import CandidateSampler, candidate_sampler, candidates
from optimum_neuron.batching.candidates import _draws_uniforms, _remove_tail

T, K, P = TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper
VOCABULARY = 3000
UNIFORM = torch.Tensor.uniform_

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
    assert candidate_sampler([K(3)]).pick(torch.tensor([[3.0, 2, 1, 0]]), torch.arange(4)[None], VOCABULARY) is not None
    for number in (34, 35):  # 32 more than top-k leaves are looked at
        ties_RV = torch.zeros(1, VOCABULARY)
        ties_RV[0, :number] = 1
        generator = torch.Generator().manual_seed(1)
        assert (candidate_sampler([K(3)]).pick_from(ties_RV, generator) is None) == (number == 35)
    logits_RV[0, 7] = torch.inf
    assert candidate_sampler([K(3)]).pick_from(logits_RV) is None
    assert sampler.pick_from(logits_RV.fill_(torch.nan)) is None


def test_large_logits_are_those_of_small_ones():
    integers_RV = torch.randint(9, (1, VOCABULARY), generator=torch.Generator().manual_seed(0)).float()
    integers_RV[0, :3] = torch.tensor([12.0, 11, 10])
    tokens = [
        candidate_sampler([K(3)]).pick_from(integers_RV + more, torch.Generator().manual_seed(2)) for more in (0, 800)
    ]
    assert tokens[0] is not None and torch.equal(*tokens)


@pytest.mark.parametrize(("draw", "margin", "is_sure"), [(2, 0.5, True), (2, 0.51, False), (1.001, None, True)])
def test_draws_that_are_nearly_equal_are_left_to_transformers(draw, margin, is_sure, monkeypatch):
    """Tokens are as likely, and draws divide their probabilities; the random stream is as before if none is taken."""

    def draws(tokens_RK, vocabulary, generator):
        torch.rand(1, generator=generator)
        return np.array([[draw, 1.0, 8.0, 4.0]])

    monkeypatch.setattr(candidates, "_draws", draws)
    if margin is not None:
        monkeypatch.setattr(candidates, "_MARGIN_OF_DRAWS", margin)
    generator = torch.Generator().manual_seed(1)
    before, values = generator.get_state(), torch.tensor([[1.0, 1, 1, 0]])
    tokens = candidate_sampler([K(3)]).pick(values, torch.arange(4)[None], VOCABULARY, generator)
    assert tokens.tolist() == [1] if is_sure else tokens is None
    assert torch.equal(generator.get_state(), before) == (not is_sure)


@pytest.mark.parametrize("draws_uniforms", [True, False])
def test_logarithms_of_all_logits_are_taken_only_where_torch_does_otherwise(draws_uniforms, monkeypatch):
    monkeypatch.setattr(candidates, "_draws_uniforms", lambda: draws_uniforms)
    monkeypatch.setattr(torch.Tensor, "exponential_" if draws_uniforms else "uniform_", None)
    assert candidate_sampler([K(5)]).pick_from(logits(1)) is not None


def exponential(factor=1.0, more=0):
    """An `exponential_` as torch may have one: logarithms of uniform numbers, of others, or of some among many."""

    def fill(self, lambd=1, *, generator):
        uniforms = UNIFORM(torch.empty(self.shape, dtype=torch.float64), generator=generator)
        if more:
            UNIFORM(torch.empty(more), generator=generator)
        return self.copy_(-factor * torch.log1p(-uniforms))

    return fill


@pytest.mark.parametrize(("options", "expected"), [({}, True), ({"factor": 1.00001}, False), ({"more": 700}, False)])
def test_it_is_found_out_how_torch_draws(options, expected, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "exponential_", exponential(**options))
    assert _draws_uniforms.__wrapped__() is expected


REASONS = {
    "top_k=0": [T(0.5), P(0.9)],
    "TopPLogitsWarper, TopKLogitsWarper": [P(0.9), K(3)],
    "MinPLogitsWarper reads": [K(3), MinPLogitsWarper(0.1)],
    "filter_value": [K(3, filter_value=-50.0)],
}


@pytest.mark.parametrize("words", REASONS)
def test_other_settings_need_all_logits(words):
    assert candidate_sampler(REASONS[words]).startswith(words)


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


@pytest.mark.parametrize(("margin", "is_sure"), [(0.25, True), (0.26, False)])
def test_sums_have_a_margin(margin, is_sure, monkeypatch):
    """The last token is a quarter, which top-p removes a half of."""
    monkeypatch.setattr(candidates, "MARGIN", margin)
    assert _remove_tail(np.array([[3.0, 2.0]]), np.array([[0.75, 0.25]]), P(0.5)) is is_sure
