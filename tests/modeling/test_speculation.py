"""Speculation returns the tokens of plain decoding, and reports how many candidates were accepted."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from transformers import set_seed

from optimum_neuron.modeling import Speculation
from optimum_neuron.upstream.cache_argument import CACHE
from tests.modeling.common import random_ids

OPTIONS = {"max_new_tokens": 20, "pad_token_id": 0, "eos_token_id": None, "do_sample": False}


def prompt(columns: int = 12) -> dict[str, torch.Tensor]:
    """A prompt with repetitions, with padding before it."""
    ids = random_ids(1, columns // 3).repeat(1, 3)
    mask = torch.ones_like(ids)
    mask[:, :2] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.fixture
def both(model):
    """Generate with a draft and without it, from one seed."""

    def generate(draft: dict[str, Any], **options: Any) -> tuple[Any, Any]:
        results = []
        for more in (draft, {}):
            set_seed(0)
            results.append(model.generate(**prompt(), **{**OPTIONS, **options}, **more))
        return results[0], results[1]

    return generate


DRAFTS = ["prompt lookup", "the model itself", "another model"]


@pytest.fixture(params=DRAFTS)
def draft(request, model, original):
    assistants = {"the model itself": model, "another model": original}
    name = request.param
    return {"assistant_model": assistants[name]} if name in assistants else {"prompt_lookup_num_tokens": 3}


SETTINGS: list[dict[str, Any]] = [
    {},
    {"do_sample": True},
    {"do_sample": True, "temperature": 0.3, "top_k": 8, "repetition_penalty": 1.2},
    {"max_new_tokens": 48},  # up to the end of the cache
    {"return_dict_in_generate": True, "output_scores": True, "output_logits": True},
]


@pytest.mark.parametrize("settings", SETTINGS, ids="+".join)
def test_tokens_are_those_of_plain_decoding(both, model, draft, settings):
    actual, expected = both(draft, **settings)
    if settings.get("return_dict_in_generate"):
        for name in ("scores", "logits"):
            torch.testing.assert_close(actual[name], expected[name], atol=1e-4, rtol=0)
        assert actual[CACHE].columns == expected[CACHE].columns
        actual, expected = actual.sequences, expected.sequences
    assert actual.tolist() == expected.tolist()
    report = model.last_speculation
    assert report.num_checks + report.num_accepted == actual.shape[1] - 12 - 1


def test_rows_end_in_the_middle_of_candidates(both, model):
    free = model.generate(**prompt(), **OPTIONS)
    for place in (14, 15, 16):
        actual, expected = both({"assistant_model": model}, eos_token_id=int(free[0, place]))
        assert actual.tolist() == expected.tolist()


def test_a_model_accepts_its_own_candidates(model, caplog):
    with caplog.at_level(logging.INFO, logger="optimum_neuron"):
        model.generate(**prompt(), **OPTIONS, assistant_model=model)
    report = model.last_speculation
    assert report.acceptance_rate == 1.0 and report.tokens_per_call > 1.5
    assert str(report) in caplog.text and "assistant model" in str(report)


def test_turns_and_crops_after_speculation(model):
    settings = {**OPTIONS, "max_new_tokens": 8}
    first = model.generate(**prompt(), **settings, prompt_lookup_num_tokens=4, return_dict_in_generate=True)
    ids = torch.cat([first.sequences, random_ids(1, 3, seed=1)], 1)
    mask = torch.nn.functional.pad(prompt()["attention_mask"], (0, ids.shape[1] - 12), value=1)
    expected = model.generate(ids, attention_mask=mask, **settings)
    options = {"attention_mask": mask, CACHE: first[CACHE], "prompt_lookup_num_tokens": 4}
    assert torch.equal(model.generate(ids, **options, **settings), expected)


def test_settings_that_need_transformers_loop(model, original):
    model.generate(**prompt(), **OPTIONS, assistant_model=original, assistant_ensemble_weight=0.5)
    assert model.last_speculation is None and "its own scores" in model.last_loop.reason


def test_report_of_nothing():
    report = Speculation(draft="prompt lookup")
    assert (report.acceptance_rate, report.tokens_per_call) == (0.0, 1.0)
