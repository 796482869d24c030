"""Ranges and defaults of `SamplingParams`: those that vLLM documents, with its classes of errors."""

from __future__ import annotations

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.vllm_neuron.sampling_params import (
    BeamSearchParams,
    GuidedDecodingParams,
    RequestOutputKind,
    SamplingParams,
)
from tests.raising import raises


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 0),
        ("n", 1.5),
        ("best_of", 0),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("repetition_penalty", 0),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("min_p", 1.5),
        ("max_tokens", 0),
        ("min_tokens", -1),
        ("min_tokens", 17),
        ("logprobs", -2),
        ("prompt_logprobs", -2),
        ("truncate_prompt_tokens", 0),
        ("seed", "a"),
        ("stop", 5),
        ("stop", [""]),
        ("stop_token_ids", ["a"]),
        ("flat_logprobs", True),
        ("extra_args", {"a": 1}),
        ("thinking_token_budget", 4),
        ("logprob_token_ids", [1]),
    ],
)
def test_values_out_of_range_are_value_errors_that_name_them(name, value):
    with raises(ConfigError, option=name):
        SamplingParams(**{name: value})
    assert issubclass(ConfigError, ValueError)


def test_types_contradictions_and_defaults():
    with pytest.raises(TypeError, match="top_k"):
        SamplingParams(top_k=1.5)
    for wrong in ({"n": 2, "temperature": 0}, {"n": 3, "best_of": 2}, {"stop": "a", "detokenize": False}):
        with pytest.raises(ValueError):
            SamplingParams(**wrong)
    kinds = {"ignore_eos": "no", "stop_token_ids": 3, "bad_words": [1], "logit_bias": [5], "output_kind": "delta"}
    kinds |= {"structured_outputs": {"regex": "a"}, "logits_processors": ["min_p"], "allowed_token_ids": "5"}
    for option, value in kinds.items():
        with raises(ConfigError, option=option):
            SamplingParams(**{option: value})
    with raises(ConfigError, option="best_of"):
        SamplingParams(n=1, best_of=2, output_kind=RequestOutputKind.DELTA)
    params = SamplingParams()
    assert (params.temperature, params.top_p, params.top_k, params.max_tokens, params.n) == (1.0, 1.0, 0, 16, 1)
    assert (params.stop, params.stop_token_ids, params.bad_words) == ([], [], [])


@pytest.mark.parametrize("ids", [{2}, (2,), frozenset({2})])
def test_collections_of_tokens_become_lists(ids):
    params = SamplingParams(stop_token_ids=ids, allowed_token_ids=ids)
    assert params.stop_token_ids == params.allowed_token_ids == [2]
    greedy = SamplingParams(temperature=0, top_p=0.5, top_k=3, min_p=0.1)
    assert (greedy.top_p, greedy.top_k, greedy.min_p) == (1.0, 0, 0.0)
    assert SamplingParams(temperature=1e-3).temperature == 1e-2
    assert SamplingParams(seed=-1).seed is None and SamplingParams(stop="a").stop == ["a"]
    assert SamplingParams.from_optional(top_p=None, logit_bias={"3": 200.0}).logit_bias == {3: 100.0}
    copied = SamplingParams(stop=["a"]).clone()
    copied.stop.append("b")
    assert copied.stop == ["a", "b"]


def test_constraints_are_one():
    with raises(ConfigError, given=["json", "regex"]):
        GuidedDecodingParams(json={}, regex="a")
    with raises(ConfigError, option="structural_tag"):
        GuidedDecodingParams(structural_tag="a")
    with pytest.raises(TypeError, match="regex"):
        GuidedDecodingParams(regx="a")
    with raises(ConfigError, option="beam_width"):
        BeamSearchParams(beam_width=0, max_tokens=1)
