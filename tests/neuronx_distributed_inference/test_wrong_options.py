"""Options of NxD Inference that a checkpoint or an instance contradicts: one error each, before a compile."""

import json
import shutil

import pytest
import torch

from optimum_neuron.errors import AssertedConfigError, ConfigError
from optimum_neuron.neuronx_distributed_inference import FusedSpecNeuronConfig, NeuronConfig, load_pretrained_config
from optimum_neuron.neuronx_distributed_inference.families import LlamaInferenceConfig, NeuronLlamaForCausalLM
from optimum_neuron.transformers_neuronx import LlamaForSampling, NeuronConfig as OlderConfig, QuantizationConfig
from tests import tiny
from tests.raising import raises

OPTIONS = {"batch_size": 2, "seq_len": 48, "max_context_length": 16, "torch_dtype": torch.float32}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny.save_tiny(tmp_path_factory.mktemp("llama"), "llama", num_hidden_layers=1)


def config_of(checkpoint, **options):
    neuron_config = NeuronConfig(**{**OPTIONS, **options})
    return LlamaInferenceConfig(neuron_config, load_config=load_pretrained_config(checkpoint))


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"tp_degree": 3}, {"option": "tp_degree"}),
        ({"ep_degree": 2}, {"option": "ep_degree"}),
        ({"tp_degree": 8}, {"option": "tp_degree", "num_heads": 4}),
        ({"seq_len": 4096}, {"option": "seq_len"}),
        ({"pp_degree": 3}, {"option": "pp_degree"}),
        ({"on_device_sampling_config": {"global_topk": 400}}, {"option": "global_topk"}),
        ({"is_prefix_caching": True}, {"option": "is_prefix_caching"}),
        ({"quantized": True, "quantized_checkpoints_path": "q", "quantization_dtype": "int3"}, {"value": "int3"}),
        ({"target": "trn9"}, {"value": "trn9"}),
        ({"enable_fused_speculation": True, "batch_size": 1}, {"option": "fused_spec_config"}),
        ({"torch_dtype": torch.float8_e4m3fn}, {"value": "float8_e4m3fn"}),
    ],
    ids=str,
)
def test_wrong_options_are_refused_before_a_compile(checkpoint, tmp_path, wrong, error, monkeypatch):
    monkeypatch.setattr("optimum_neuron.modeling.loading.prepare", None)
    with raises(ConfigError, **error):
        NeuronLlamaForCausalLM(checkpoint, config_of(checkpoint, **wrong)).compile(tmp_path)


def test_a_draft_has_the_tokens_of_the_target(checkpoint, tmp_path):
    wider = tiny.save_tiny(tmp_path / "wider", "llama", num_hidden_layers=1, vocab_size=128)
    config = config_of(checkpoint, speculation_length=3, enable_fused_speculation=True)
    config.fused_spec_config = FusedSpecNeuronConfig(None, config_of(wider), str(wider))
    with raises(ConfigError, draft=128, target=tiny.VOCABULARY):
        NeuronLlamaForCausalLM(checkpoint, config).compile(tmp_path / "both")
    config.fused_spec_config.draft_config = None
    with raises(ConfigError, option="draft_config"):
        NeuronLlamaForCausalLM(checkpoint, config).compile(tmp_path / "both")


def test_quantization_that_the_checkpoint_contradicts_is_refused(checkpoint, tmp_path):
    shutil.copytree(checkpoint, tmp_path / "fp8")
    file = tmp_path / "fp8" / "config.json"
    data = json.loads(file.read_text()) | {"quantization_config": {"quant_method": "fp8", "weight_block_size": None}}
    file.write_text(json.dumps(data))
    config = config_of(tmp_path / "fp8", quantized=True, quantized_checkpoints_path="q", quantization_dtype="int8")
    with raises(ConfigError, option="quantization_dtype", published="fp8"):
        NeuronLlamaForCausalLM(tmp_path / "fp8", config).compile(tmp_path)
    with raises(ConfigError, option="quant", published="fp8"):
        LlamaForSampling.from_pretrained(
            tmp_path / "fp8", n_positions=64, tp_degree=1, neuron_config=OlderConfig(quant=QuantizationConfig())
        )


def test_quantized_checkpoints_are_checked(checkpoint, tmp_path):
    options = {"quantized": True, "quantized_checkpoints_path": str(tmp_path / "q"), "quantization_dtype": "int3"}
    with raises(ConfigError, value="int3"):
        NeuronLlamaForCausalLM.save_quantized_state_dict(checkpoint, config_of(checkpoint, **options))
    with raises(ConfigError, option="quantized"):
        NeuronLlamaForCausalLM.save_quantized_state_dict(checkpoint, config_of(checkpoint))
    with raises(ConfigError, value="blockwise_symmetric"):
        wrong = {"quantization_dtype": "int8", "quantization_type": "blockwise_symmetric"}
        NeuronLlamaForCausalLM.save_quantized_state_dict(checkpoint, config_of(checkpoint, **options | wrong))


def test_asserted_errors_are_assertions(checkpoint):
    with pytest.raises(AssertionError) as caught:
        config_of(checkpoint, max_context_length=64)
    assert isinstance(caught.value, AssertedConfigError) and caught.value.details["option"] == "max_context_length"
