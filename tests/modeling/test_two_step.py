"""Decoders exported in two steps, as scripts of Optimum Neuron do."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron import NeuronConfig, NeuronEncoderConfig, NeuronModelForCausalLM
from optimum_neuron.errors import ArtifactError, ConfigError
from tests.modeling.common import raises
from tests.tiny import SHAPES


def test_both_steps_match_single_step(checkpoint, export_folder, tmp_path):
    options = {name: value for name, value in SHAPES.items() if name != "task"}
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
