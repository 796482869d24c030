"""Decoders exported in two steps, as scripts of Optimum Neuron do."""

from __future__ import annotations

import logging

import pytest
import torch

from optimum_neuron import NeuronConfig, NeuronModelForCausalLM
from optimum_neuron.errors import ArtifactError, ConfigError
from optimum_neuron.kinds.encoder import NeuronEncoderConfig
from tests.raising import raises
from tests.tiny import SHAPES


def test_both_steps_match_single_step(checkpoint, export_folder, tmp_path):
    options = {name: value for name, value in SHAPES.items() if name != "task"} | {"tensor_parallel_size": 1}
    config = NeuronModelForCausalLM.get_neuron_config(checkpoint, **options)
    assert config == NeuronConfig.from_pretrained(export_folder)
    model = NeuronModelForCausalLM.export(checkpoint, config, load_weights=False)
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(model(ids).logits, NeuronModelForCausalLM.from_pretrained(export_folder)(ids).logits)
    model.save_pretrained(tmp_path / "two_steps")
    assert NeuronConfig.from_pretrained(tmp_path / "two_steps") == config


def test_configuration_is_complete_without_options(checkpoint):
    config = NeuronModelForCausalLM.get_neuron_config(checkpoint, instance_type="trn1.2xlarge")
    assert config.batch_size == 1 and config.sequence_length and config.prefill_buckets and config.target == "trn1"


@pytest.mark.parametrize(
    ("environ", "options", "expected"),
    [
        ({}, {"instance_type": "inf2.xlarge"}, 2),
        ({}, {"instance_type": "inf2.48xlarge"}, 4),
        ({"NEURON_RT_NUM_CORES": "1"}, {"instance_type": "inf2.xlarge"}, 1),
        ({"NEURON_RT_VISIBLE_CORES": "0-2"}, {"instance_type": "trn1.32xlarge"}, 2),
        ({}, {"instance_type": "inf2.xlarge", "num_cores": 1}, 1),
        ({}, {"instance_type": "inf2.xlarge", "pipeline_parallel_size": 2}, 1),
    ],
)
def test_every_usable_core_with_a_head_is_the_default(checkpoint, monkeypatch, caplog, environ, options, expected):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with caplog.at_level(logging.INFO, logger="optimum_neuron.modeling.two_step"):
        config = NeuronModelForCausalLM.get_neuron_config(checkpoint, **options)
    assert config.tensor_parallel_size == expected
    assert bool(caplog.records) == (options.keys() == {"instance_type"})


@pytest.mark.parametrize("options", [{"tensor_parallel_size": 3}, {"sequence_lenght": 8}, {"batch_size": 0}])
def test_invalid_options_are_refused(checkpoint, options):
    with pytest.raises(ConfigError):
        NeuronModelForCausalLM.get_neuron_config(checkpoint, **options)


def test_other_configuration_type_is_refused(checkpoint, export_folder):
    with raises(ConfigError, type="dict"):
        NeuronModelForCausalLM.export(checkpoint, {"batch_size": 1})
    with raises(ConfigError, config_class="NeuronConfig"):
        NeuronEncoderConfig.from_pretrained(export_folder)
    with pytest.raises(ArtifactError):
        NeuronConfig.from_pretrained(checkpoint)
