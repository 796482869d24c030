"""The whole weights of a model in one process: those of transformers and PEFT, by their names in a checkpoint."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from optimum_neuron.distributed.whole import WholeModel, load_weights, read_weights
from optimum_neuron.errors import ModelError
from tests.tiny import tiny_config


def llama(**sizes):
    return AutoModelForCausalLM.from_config(tiny_config("llama", **sizes))


@pytest.mark.parametrize("tied", [False, True])
def test_weights_are_gathered_and_loaded_by_their_names(tmp_path, tied):
    model, other = llama(tie_word_embeddings=tied), llama(tie_word_embeddings=tied)
    whole = WholeModel.of(model)
    assert all(tensor.is_meta for tensor in whole.tensors.values())
    gathered = whole.gather(model)
    torch.testing.assert_close(gathered, dict(model.state_dict()), rtol=0, atol=0)
    assert (gathered["lm_head.weight"] is gathered["model.embed_tokens.weight"]) is tied
    other.save_pretrained(tmp_path)
    saved = read_weights(tmp_path)
    assert ("lm_head.weight" in saved) is not tied and whole.differences(saved) == ""
    load_weights(model, whole, tmp_path)
    torch.testing.assert_close(dict(model.state_dict()), dict(other.state_dict()), rtol=0, atol=0)


def test_weights_of_another_model_are_refused(tmp_path):
    model, other = llama(), llama(intermediate_size=32, num_hidden_layers=2)
    other.save_pretrained(tmp_path)
    with pytest.raises(ModelError) as error:
        load_weights(model, WholeModel.of(model), tmp_path)
    differences = error.value.details["differences"]
    assert "9 missing: model.layers.2." in differences and "(32, 32), not (64, 32)" in differences


def test_adapter_has_the_names_that_peft_saves(tmp_path):
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(llama(), peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False))
    whole = WholeModel.of(model)
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert read_weights(tmp_path).keys() == saved.keys() == whole.tensors.keys() and whole.differences(saved) == ""
    gathered, state = whole.gather(model), model.state_dict()
    assert len(gathered) == len(saved) == 6
    for name, tensor in saved.items():
        assert torch.equal(gathered[whole.names[name]], tensor) and torch.equal(state[whole.names[name]], tensor)
        state[whole.names[name]].zero_()
    load_weights(model, whole, tmp_path)
    torch.testing.assert_close(whole.gather(model), gathered, rtol=0, atol=0)
