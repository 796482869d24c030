"""Which implementation takes a configuration, and the reasons."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.errors import ConfigError
from optimum_neuron.models import build_decoder, choose_family, families
from tests.tiny import tiny_config


@pytest.mark.parametrize("model_type", ["llama", "mistral"])
def test_a_covered_type_goes_to_its_family(model_type):
    choice = choose_family(tiny_config(model_type))
    assert (choice.value, choice.reason) == ("llama", f"model_type {model_type}, every option covered")


def test_a_type_that_no_family_covers_is_generic_and_every_family_says_why_not():
    choice = choose_family(tiny_config("xglm"))
    assert (choice.value, choice.reason) == ("generic", "no optimized decoder for model_type xglm")
    assert [rejected.candidate for rejected in choice.rejected] == list(families())
    assert choice.rejected[0].reason == "covers model_type llama, mistral"


UNCOVERED = {
    "activation": ({"hidden_act": "tanh"}, "hidden_act=tanh"),
    "rotary": ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "rope_type=dynamic"),
}


@pytest.mark.parametrize(("overrides", "gap"), UNCOVERED.values(), ids=UNCOVERED)
def test_an_option_that_the_family_lacks_is_generic_and_named(overrides, gap):
    config = tiny_config("llama", **overrides)
    choice = choose_family(config)
    assert choice.value == "generic"
    assert choice.reason.startswith(f"family llama covers model_type llama, but does not implement {gap}")
    assert choice.rejected[0].candidate == "llama" and f"does not implement {gap}" in choice.rejected[0].reason
    with pytest.raises(ConfigError) as error:
        choose_family(config, family="llama")
    assert f"does not implement {gap}" in error.value.details["problem"]


def test_a_forced_family_is_taken_or_refused_with_the_reason():
    assert choose_family(tiny_config("llama"), family="llama").value == "llama"
    choice = choose_family(tiny_config("llama"), family="generic")
    assert (choice.value, choice.reason) == ("generic", "asked for by name")
    with pytest.raises(ConfigError) as refused:
        choose_family(tiny_config("xglm"), family="llama")
    assert refused.value.details["problem"] == "covers model_type llama, mistral"
    assert "family='generic'" in refused.value.hint


@pytest.mark.parametrize(("name", "hint"), [("lama", "did you mean 'llama'?"), ("generik", "did you mean 'generic'?")])
def test_an_unknown_family_is_refused_with_the_nearest(name, hint):
    with pytest.raises(ConfigError) as refused:
        choose_family(tiny_config("llama"), family=name)
    assert hint in str(refused.value) and "llama, generic" in str(refused.value)


@pytest.mark.parametrize("family", [None, "generic"])
def test_a_decoder_is_built_without_weights(family):
    built = build_decoder(tiny_config("llama", tie_word_embeddings=True), dtype="float16", family=family)
    assert not built.module.training
    parameters = dict(built.module.named_parameters())
    assert {(p.device.type, p.dtype) for p in parameters.values()} == {("meta", torch.float16)}
    assert built.weight_sources.keys() == parameters.keys(), "a tied head is no parameter of its own"
    assert len(built.state_shapes) == 3 and len(built.module.cuts) == 1
