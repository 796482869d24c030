"""Parameters of a compiled model match the reference model."""

from __future__ import annotations

import torch

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError
from tests.raising import raises


def test_counts_and_sizes_match_reference_model(model, original, checkpoint):
    assert model.num_parameters() == original.num_parameters()
    assert model.num_parameters(only_trainable=True) == 0
    assert model.get_memory_footprint(return_buffers=False) == original.get_memory_footprint(return_buffers=False)
    assert model.get_memory_footprint() == model.describe()["hbm_bytes"]["weights"]
    assert model.name_or_path == str(checkpoint)
    with raises(ConfigError, option="exclude_embeddings"):
        model.num_parameters(exclude_embeddings=True)


def test_tensors_match_checkpoint_and_bind_again(model, original, export_folder):
    result, expected = model.state_dict(), original.state_dict()
    assert set(result) == set(expected)
    assert all(torch.equal(result[name], tensor) for name, tensor in expected.items())
    assert next(model.parameters()).device == model.device
    assert dict(model.named_parameters()).keys() == result.keys()
    for tensor in result.values():
        tensor.mul_(0.5)  # copies: the model stays as it is
    ids = torch.full((1, 4), 5)
    other = NeuronModelForCausalLM.from_pretrained(export_folder)
    before = other(ids).logits
    assert torch.equal(model(ids).logits, before)
    other.replace_weights(result)
    assert not torch.equal(other(ids).logits, before)
    other.close()
