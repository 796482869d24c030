"""Models to train load as transformers loads them."""

from __future__ import annotations

import pytest
import torch
import transformers

from optimum_neuron.errors import ConfigError
from optimum_neuron.trainer import LlamaForCausalLM, NeuronModelForCausalLM, TrainingNeuronConfig
from tests.raising import raises

IDS = torch.tensor([[5, 6, 7]])


@pytest.mark.parametrize("options", [{"attn_implementation": "flash_attention_2"}, {"use_flash_attention_2": True}])
@pytest.mark.parametrize("loader", [NeuronModelForCausalLM, LlamaForCausalLM])
def test_checkpoint_loads_like_transformers(loader, checkpoint, options):
    model = loader.from_pretrained(checkpoint, TrainingNeuronConfig(), dtype="bfloat16", revision="main", **options)
    expected = transformers.LlamaForCausalLM.from_pretrained(checkpoint, dtype="bfloat16", attn_implementation="sdpa")
    assert type(model) is transformers.LlamaForCausalLM and model.config._attn_implementation == "sdpa"
    assert torch.equal(model(IDS).logits, expected(IDS).logits)


def test_configuration_gives_random_model(checkpoint):
    config = transformers.AutoConfig.from_pretrained(checkpoint)
    model = NeuronModelForCausalLM.from_config(config, TrainingNeuronConfig(tensor_parallel_size=2))
    assert type(model) is transformers.LlamaForCausalLM and model(IDS).logits.isfinite().all()


def test_layout_of_another_class(checkpoint):
    with raises(ConfigError, type="dict"):
        NeuronModelForCausalLM.from_pretrained(checkpoint, {"tensor_parallel_size": 2})


def test_gguf_file_loads_with_its_rotary_positions(tmp_path):
    pytest.importorskip("gguf")
    from tests.sources.test_gguf_settings import CASES, IDS as GGUF_IDS, LLAMA3, save

    expected = save(tmp_path, "llama", {}, CASES["llama3"][2], rope_parameters=LLAMA3)
    model = NeuronModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype="float32")
    torch.testing.assert_close(model(GGUF_IDS).logits, expected, atol=2e-4, rtol=1e-4)
