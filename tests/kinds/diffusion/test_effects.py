"""A `sequence_length` that a pipeline has no use for: an error, or ignored under the rules of Optimum Neuron."""

from __future__ import annotations

import logging

import pytest
from diffusers import StableDiffusionPipeline

from optimum_neuron.errors import ConfigError
from optimum_neuron.kinds.diffusion import NeuronDiffusionConfig
from optimum_neuron.kinds.diffusion.effects import with_effects
from optimum_neuron.options.peer_attributes import upstream_rules
from tests.tiny_pipelines.table import make_pipeline


@pytest.fixture(scope="module")
def stock() -> StableDiffusionPipeline:
    return make_pipeline("sd")


def test_length_of_prompts_is_an_error_or_ignored(stock, caplog):
    length = stock.tokenizer.model_max_length
    config = NeuronDiffusionConfig(sequence_length=length + 1)
    with pytest.raises(ConfigError) as caught:
        with_effects(config, stock)
    assert caught.value.details == {"option": "sequence_length", "length": length}
    with upstream_rules(), caplog.at_level(logging.INFO, logger="optimum_neuron"):
        assert with_effects(config, stock).sequence_length is None
    assert [record.levelname for record in caplog.records] == ["INFO"]


@pytest.mark.parametrize("rules", [False, True])
def test_the_only_length_is_accepted(stock, rules):
    config = NeuronDiffusionConfig(sequence_length=stock.tokenizer.model_max_length)
    if rules:
        with upstream_rules():
            assert with_effects(config, stock) is config
    assert with_effects(config, stock) is config
