"""Parameters of a compiled model are those of the reference model."""

from __future__ import annotations

import torch

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError
from tests.modeling.common import raises


def test_counts_and_sizes_are_those_of_the_original(model, original, checkpoint):
    assert model.num_parameters() == original.num_parameters()
    assert model.num_parameters(only_trainable=True) == 0
    assert model.get_memory_footprint(return_buffers=False) == original.get_memory_footprint(return_buffers=False)
    assert model.get_memory_footprint() == model.describe()["hbm_bytes"]["weights"]
    assert model.name_or_path == str(checkpoint)
    with raises(ConfigError, option="exclude_embeddings"):
        model.num_parameters(exclude_embeddings=True)


def test_tensors_are_those_of_the_checkpoint_and_can_be_bound_again(model, original, exported):
    found, wanted = model.state_dict(), original.state_dict()
    assert set(found) == set(wanted)
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())
    assert next(model.parameters()).device == model.device
    assert dict(model.named_parameters()).keys() == found.keys()
    for tensor in found.values():
        tensor.mul_(0.5)  # copies: the model stays as it is
    ids = torch.full((1, 4), 5)
    other = NeuronModelForCausalLM.from_pretrained(exported)
    before = other(ids).logits
    assert torch.equal(model(ids).logits, before)
    other.replace_weights(found)
    assert not torch.equal(other(ids).logits, before)
    other.close()
