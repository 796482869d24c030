"""`TokenSelector` chooses the tokens that transformers' `generate` chooses."""

from __future__ import annotations

import pytest
import torch
from optimum.neuron.generation import TokenSelector
from transformers import AutoModelForCausalLM, GenerationConfig, LogitsProcessorList, MaxLengthCriteria
from transformers.generation import GenerationMode, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from optimum_neuron.errors import ConfigError
from tests.tiny import VOCABULARY, tiny_config

LIMIT = 24
PROMPT = torch.tensor([[5, 6, 7, 8], [9, 5, 11, 6]])
SETTINGS = (
    {},
    {"bad_words_ids": [[11, 12], [40]]},
    {"forced_eos_token_id": 2},
    {"max_length": 9},
    {"max_new_tokens": 100},
    {"min_new_tokens": 6, "eos_token_id": [2, 17]},
    {"no_repeat_ngram_size": 2},
    {"repetition_penalty": 1.7},
    {"suppress_tokens": [3, 4, 33], "begin_suppress_tokens": [44]},
)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tiny_config("llama")).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def create(model, **settings):
    config = GenerationConfig(**{"eos_token_id": 2, "pad_token_id": 0, "max_length": LIMIT, **settings})
    return config, TokenSelector.create(PROMPT, config, model, LIMIT, seed=3)


@torch.no_grad()
def generate(model, selector):
    """Generate as an endpoint does that has its own loop."""
    ids, over = PROMPT, torch.zeros(len(PROMPT), dtype=torch.bool)
    while not over.all():
        tokens = selector.select(ids, model(ids).logits[:, -1])
        ids = torch.cat([ids, tokens.masked_fill(over, selector.pad_token_id)[:, None]], 1)
        over |= selector.stopping_criteria(ids, None)
    return ids


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "+".join(settings) or "greedy")
def test_greedy_search_is_that_of_transformers(model, settings):
    config, selector = create(model, do_sample=False, **settings)
    assert selector.mode == GenerationMode.GREEDY_SEARCH and selector.pad_token_id == 0
    if "max_new_tokens" in settings:  # cut to what the model holds
        config = GenerationConfig(**config.to_diff_dict() | {"max_new_tokens": LIMIT - PROMPT.shape[1]})
    assert generate(model, selector).tolist() == model.generate(PROMPT, generation_config=config).tolist()


@pytest.mark.parametrize(
    "settings",
    [
        {"top_k": 5},
        {"top_k": 0, "top_p": 0.7},
        {"temperature": 0.6, "top_k": 9, "top_p": 0.8, "repetition_penalty": 1.3},
    ],
    ids="+".join,
)
def test_sampled_tokens_have_the_probabilities_of_transformers(model, settings):
    _, selector = create(model, do_sample=True, **settings)
    with torch.no_grad():
        logits = model(PROMPT).logits[:, -1]
    scores = selector.logits_processor(PROMPT, logits)
    warpers = LogitsProcessorList([TemperatureLogitsWarper(settings.get("temperature", 1.0))])
    if settings["top_k"]:
        warpers.append(TopKLogitsWarper(settings["top_k"]))
    warpers.append(TopPLogitsWarper(settings.get("top_p", 1.0)))
    expected = warpers(PROMPT, scores).softmax(-1)
    num_draws = 2000
    drawn = torch.stack([selector.select(PROMPT, logits) for _ in range(num_draws)], 1)
    shares = torch.nn.functional.one_hot(drawn, VOCABULARY).float().mean(1)
    assert not shares[expected == 0].any()
    torch.testing.assert_close(shares, expected, atol=5 * (0.25 / num_draws) ** 0.5, rtol=0)


def test_the_seed_decides(model):
    draws = [generate(model, create(model, do_sample=True, top_k=20)[1]).tolist() for _ in range(2)]
    assert draws[0] == draws[1]


def test_own_criteria_are_kept(model):
    config = GenerationConfig(eos_token_id=2, pad_token_id=0, max_length=LIMIT)
    selector = TokenSelector.create(PROMPT, config, model, LIMIT, stopping_criteria=[MaxLengthCriteria(6)])
    assert generate(model, selector).shape[1] <= 6 and config.max_length == LIMIT


def test_padding_is_the_end_where_there_is_none(model):
    assert create(model, pad_token_id=None, eos_token_id=[17, 2])[1].pad_token_id in (0, 17)


@pytest.mark.parametrize(
    ("settings", "details"),
    [
        ({"min_length": LIMIT + 1, "max_length": LIMIT + 2}, {"option": "min_length", "limit": LIMIT}),
        ({"num_beams": 2}, {"mode": "beam_search"}),
        (
            {"output_scores": True, "return_dict_in_generate": True},
            {"options": ["output_scores", "return_dict_in_generate"]},
        ),
    ],
    ids=lambda value: next(iter(value)),
)
def test_other_generation_is_refused(model, settings, details):
    with pytest.raises(ConfigError) as caught:
        create(model, **settings)
    assert details.items() <= caught.value.details.items()
