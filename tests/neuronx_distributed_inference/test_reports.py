"""Reports of NxD Inference against NumPy and torch: percentiles, tensors that are close; names of its families."""

import argparse

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron.errors import AssertedConfigError, ConfigError, LogitMatchingError, ModelError
from optimum_neuron.neuronx_distributed_inference import (
    MoENeuronConfig,
    NeuronConfig,
    accuracy,
    benchmark,
    demo,
    families,
    load_pretrained_config,
    logits,
)
from optimum_neuron.neuronx_distributed_inference.demo_arguments import StringOrIntegers
from tests.raising import raises
from tests.tiny import save_tiny


def test_percentiles_are_those_of_numpy():
    seconds = np.random.default_rng(0).random(7)
    report = benchmark.generate_report(seconds, max_length=64, max_batch_size=2, n_runs=7)
    for percent in (50, 90, 95, 99, 100):
        assert report[f"latency_ms_p{percent}"] == pytest.approx(1e3 * np.percentile(seconds, percent))
    assert report["latency_ms_avg"] == pytest.approx(1e3 * seconds.mean())
    assert report["throughput"] == pytest.approx(7 * 64 * 2 / seconds.sum())
    assert benchmark.generate_report([], 64, 2) is None


def test_tolerances_of_tensors_are_of_the_largest_value():
    expected = torch.tensor([100.0, 0.5])
    passed, error = logits.check_accuracy_embeddings(torch.tensor([100.0, 1.4]), expected)
    assert passed and error == pytest.approx(0.009)
    with pytest.raises(AssertionError):  # as torch has it, of each value
        torch.testing.assert_close(torch.tensor([100.0, 1.4]), expected, rtol=0.01, atol=1e-5)
    assert not logits.check_accuracy_embeddings(torch.tensor([100.0, 1.6]), expected)[0]
    with raises(AssertedConfigError, actual="torch.float32"):
        logits.check_accuracy_embeddings(expected, expected.half())


def test_the_last_token_that_differs_is_named_unless_it_is_the_first():
    def error(*rows):
        return LogitMatchingError("", results=[[{"passed": one} for one in row] for row in rows])

    assert error([True, False, False, True], [True, True, True, True]).get_divergence_index() == 2
    assert error([True, False], [False, True]).get_divergence_index() == 0
    assert LogitMatchingError("").get_divergence_index() == -1


def test_classes_of_a_family_have_the_names_of_the_library():
    assert families.LlamaNeuronConfig is NeuronConfig and families.MixtralNeuronConfig is MoENeuronConfig
    assert families.NeuronLlamaForCausalLM._model_cls is families.NeuronLlamaModel
    with raises(ModelError, name="NeuronLlamaModel"):
        families.NeuronLlamaModel()


def test_room_for_new_tokens_that_nobody_asked_for_is_no_contradiction():
    assert NeuronConfig(max_context_length=5, max_length=7).max_new_tokens == 123  # seq_len is 128
    with raises(AssertedConfigError, option="max_new_tokens"):
        NeuronConfig(max_context_length=5, max_length=7, max_new_tokens=100)


def test_models_with_images_and_networks_of_scripts_are_one_error_with_the_alternative():
    from neuronx_distributed_inference.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLInferenceConfig
    from neuronx_distributed_inference.modules.attention.attention_base import NeuronAttentionBase

    class Attention(NeuronAttentionBase):
        """A layer of a script."""

    with raises(ModelError, name="NeuronAttentionBase"):
        Attention()
    with raises(ModelError, name="Qwen2VLInferenceConfig"):
        Qwen2VLInferenceConfig(text_neuron_config=NeuronConfig(), vision_neuron_config=NeuronConfig())
    with raises(ConfigError, options=["text_neuron_config", "vision_neuron_config"]):
        families.Llama4InferenceConfig(text_neuron_config=NeuronConfig(), vision_neuron_config=NeuronConfig())


def test_a_mapping_is_no_neuron_config():
    for wrong in (None, {"tp_degree": 2}):
        with raises(ConfigError, option="neuron_config"):
            families.LlamaInferenceConfig(wrong)


@pytest.mark.parametrize(("words", "values"), [(["auto"], "auto"), (["1", "-2"], [1, -2])])
def test_an_argument_takes_numbers_or_auto(words, values):
    parser = argparse.ArgumentParser()
    parser.add_argument("--values", action=StringOrIntegers, nargs="+")
    assert parser.parse_args(["--values", *words]).values == values
    for wrong in (["auto", "5"], ["auto", "auto"], ["1", "two"]):
        with pytest.raises(argparse.ArgumentTypeError):
            parser.parse_args(["--values", *wrong])


@pytest.mark.parametrize("text", ["5", "{5: 1}", "{5:", "{'a': (1, 2)}", "[(1, 2)]"])
def test_tolerances_that_cannot_be_read_are_one_error(text):
    with raises(ConfigError, option="tol_map"):
        demo._tolerances(text)


@torch.no_grad()
def test_expected_logits_go_on_after_the_end_of_the_text(tmp_path):
    save_tiny(tmp_path, "llama", num_hidden_layers=1)
    reference = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    ids = torch.arange(3, 10)[None]
    reference.generation_config.eos_token_id = int(reference(ids).logits[0, -1].argmax())
    reference.generation_config.save_pretrained(tmp_path)
    settings = NeuronConfig(seq_len=48, max_context_length=16, torch_dtype=torch.float32, on_cpu=True)
    config = families.LlamaInferenceConfig(settings, load_config=load_pretrained_config(tmp_path))
    model = families.NeuronLlamaForCausalLM(tmp_path, config)
    logits_TRV = accuracy.generate_expected_logits(model, ids, torch.ones_like(ids), num_tokens=3)
    tokens = logits_TRV[:2].argmax(-1).T
    assert tokens[0, 0] == reference.generation_config.eos_token_id
    torch.testing.assert_close(logits_TRV[:, 0], reference(torch.cat([ids, tokens], 1)).logits[0, -3:])
