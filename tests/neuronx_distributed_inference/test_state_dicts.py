"""Weights of folders against transformers: the first layers of a checkpoint, files of several forms."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from optimum_neuron.errors import ConfigError, WeightsError
from optimum_neuron.neuronx_distributed_inference import state_dicts
from tests import tiny
from tests.raising import raises


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    tiny.save_tokenizer(folder)
    return tiny.save_tiny(folder, "llama", vocab_size=tiny.NUM_BYTE_TOKENS)


def test_the_first_layers_are_a_checkpoint(checkpoint, tmp_path):
    kept = state_dicts.create_n_layer_checkpoint(2, checkpoint, tmp_path / "two")
    small = AutoModelForCausalLM.from_pretrained(tmp_path / "two").eval()
    whole = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    whole.model.layers = whole.model.layers[:2]
    ids = torch.arange(3, 12)[None]
    with torch.no_grad():
        assert torch.equal(small(ids).logits, whole(ids, use_cache=False).logits)
    assert AutoConfig.from_pretrained(tmp_path / "two").num_hidden_layers == 2
    assert kept.keys() == small.state_dict().keys()
    texts = [AutoTokenizer.from_pretrained(folder)("a tale").input_ids for folder in (checkpoint, tmp_path / "two")]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("form", ["one", "several", "pickled"])
def test_files_of_each_form_are_read(checkpoint, tmp_path, form):
    tensors = state_dicts.load_state_dict(checkpoint)
    if form == "pickled":
        torch.save(tensors, tmp_path / "pytorch_model.bin")
    else:
        state_dicts.save_state_dict_safetensors(tensors, tmp_path, "20KB" if form == "several" else "10GB")
        assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (form == "several")
    read = state_dicts.load_state_dict(tmp_path)
    expected = AutoModelForCausalLM.from_pretrained(checkpoint).state_dict()
    assert read.keys() == expected.keys() and all(torch.equal(read[name], expected[name]) for name in expected)
    assert state_dicts.prune_state_dict({"a": None, **read}).keys() == read.keys()


def test_keys_are_set_wherever_they_are():
    content = {"text": {"depth": 9, "other": 1}, "parts": [{"depth": 8}, 5], "depth": 7}
    assert state_dicts.find_and_update_key(content, "depth", 2)
    assert content == {"text": {"depth": 2, "other": 1}, "parts": [{"depth": 2}, 5], "depth": 2}
    assert not state_dicts.find_and_update_key(content, "width", 2)


def test_wrong_names_and_folders_are_errors(tmp_path):
    for name in ("model.layers", "model.layers.abc.weight"):
        with raises(ConfigError, option="layer_prefix", name=name):
            state_dicts.find_layer_idx(name)
    with raises(WeightsError, path=str(tmp_path)):
        state_dicts.load_state_dict(tmp_path)
