"""Which implementation takes a configuration, and the reasons."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import CONFIG_MAPPING

import optimum_neuron.models as registry
from optimum_neuron.errors import ConfigError
from optimum_neuron.models import build_decoder, choose_family, families
from tests.raising import raises
from tests.tiny import tiny_config


@pytest.mark.parametrize("model_type", ["llama", "mistral"])
def test_a_covered_type_goes_to_its_family(model_type):
    choice = choose_family(tiny_config(model_type))
    assert (choice.value, choice.reason) == ("llama", f"model_type {model_type}, every option covered")


def test_a_family_is_found_by_its_file():
    files = {path.stem for path in Path(registry.__file__).parent.glob("*.py")}
    others = {
        "adapter_layers",
        "adapters",
        "heads",
        "parallel",
        "plans",
        "quantize",
        "reach",
        "registry",
        "sequence",
        "splitter",
    }
    others |= {"eagle", "first_eagle", "quantized_experts", "quantized_parts"}
    assert families().keys() == files - others - {"__init__"}
    types = [model_type for module in families().values() for model_type in module.MODEL_TYPES]
    assert len(types) == len(set(types)), "one family for each model type"
    assert set(types) <= set(CONFIG_MAPPING)


def test_the_file_of_a_family_is_short():
    for module in families().values():
        assert len(Path(module.__file__).read_text(encoding="utf-8").splitlines()) <= 120


def test_a_type_that_no_family_covers_is_generic():
    choice = choose_family(tiny_config("xglm"))
    assert (choice.value, choice.reason) == ("generic", "no optimized decoder for model_type xglm")
    assert choice.rejected == ()


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


@pytest.mark.parametrize("model_type", ["mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v3", "llama4_text"])
def test_experts_with_another_activation_are_generic(model_type):
    choice = choose_family(tiny_config(model_type, hidden_act="gelu"))
    assert choice.value == "generic" and "does not implement hidden_act=gelu" in choice.reason


def test_a_forced_family_is_taken_or_refused_with_the_reason():
    assert choose_family(tiny_config("llama"), family="llama").value == "llama"
    choice = choose_family(tiny_config("llama"), family="generic")
    assert (choice.value, choice.reason) == ("generic", "asked for by name")
    with pytest.raises(ConfigError) as refused:
        choose_family(tiny_config("xglm"), family="llama")
    assert refused.value.details["problem"] == "covers model_type llama, mistral"
    assert "family='generic'" in refused.value.hint


@pytest.mark.parametrize(("name", "nearest"), [("lama", "'llama'"), ("generik", "'generic'")])
def test_an_unknown_family_is_refused_with_the_nearest(name, nearest):
    with raises(ConfigError, option="family", value=name) as refused:
        choose_family(tiny_config("llama"), family=name)
    assert nearest in refused.value.message and refused.value.details["choices"]


@pytest.mark.parametrize("family", [None, "generic"])
def test_a_decoder_is_built_without_weights(family):
    built = build_decoder(tiny_config("llama", tie_word_embeddings=True), dtype="float16", family=family)
    assert not built.module.training
    parameters = dict(built.module.named_parameters())
    assert {(p.device.type, p.dtype) for p in parameters.values()} == {("meta", torch.float16)}
    assert built.weight_sources.keys() == parameters.keys(), "a tied head is no parameter of its own"
    assert len(built.states) == 3 and len(built.module.cuts) == 1
