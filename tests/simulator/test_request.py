"""What a buyer asks for: prompts apart from compiled lengths, prefix hits, batches in flight, axes, several cores."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from transformers import AutoConfig, ResNetConfig

from optimum_neuron.errors import ConfigError
from optimum_neuron.simulator import capture_model, estimate, estimate_program
from optimum_neuron.simulator.entry import source_of
from tests.encoders import TINY
from tests.raising import raises
from tests.tiny import tiny_config

LLAMA = tiny_config("llama", architectures=["LlamaForCausalLM"], max_position_embeddings=4096)
BERT = AutoConfig.for_model("bert", **TINY["bert"], architectures=["BertForSequenceClassification"])
CLIP = AutoConfig.for_model("clip", **TINY["clip"], architectures=["CLIPModel"])
T5 = AutoConfig.for_model("t5", d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=100)
T5.architectures = ["T5ForConditionalGeneration"]


def test_a_prompt_is_padded_to_its_compiled_length():
    short, full = (
        estimate(LLAMA, instance="inf2.xlarge", sequence_length=1024, input_length=n, output_length=24)
        for n in (100, 1000)
    )
    assert short.padding.prefill_tokens == full.padding.prefill_tokens == 1024  # as vLLM compiles it
    assert short.padding.share == 1 - 100 / 1024 and short.ttft_ms == full.ttft_ms
    assert short.padding.decode_slots < full.padding.decode_slots and short.tpot_ms.value < full.tpot_ms.value
    assert short.to_dict()["padding"]["input_tokens"] == 100
    alone = estimate(LLAMA, instance="inf2.xlarge", input_length=100, output_length=24)
    assert alone.padding.prefill_tokens == 124  # without a sequence_length, compiled for both


@pytest.mark.full(days=2)
def test_prefix_hits_are_not_computed():
    options = {"sequence_length": 64, "input_length": 56, "continuous_batching": True, "prefill_chunk_size": 8}
    options |= {"block_size": 8, "output_length": 4}
    cold, half, whole = (
        estimate(LLAMA, instance="inf2.xlarge", prefix_hit_rate=rate, requests_per_s=load, **options)
        for rate, load in ((0.0, 20.0), (0.5, None), (1.0, 20.0))
    )
    assert dataclasses.replace(cold, load=None) == estimate(LLAMA, instance="inf2.xlarge", **options)
    assert [one.padding.cached_tokens for one in (cold, half, whole)] == [0, 24, 48]  # whole chunks, not the last token
    assert cold.ttft_ms.value > half.ttft_ms.value > whole.ttft_ms.value
    assert cold.load.utilization.value > whole.load.utilization.value


def test_batches_in_flight_wait_for_their_turn():
    one, many = (estimate(BERT, instance="inf2.xlarge", sequence_length=16, batches_in_flight=n) for n in (None, 8))
    assert many.latency_ms.value == pytest.approx(8 * one.latency_ms.value)
    assert many.throughput_per_s.value == pytest.approx(one.throughput_per_s.value)
    assert one.parts_ms["forward"]["host"] > 0


def test_published_throughput_of_two_batches_in_flight():
    """ResNet-18 on inf2.xlarge by NeuronPerf: 6949 images a second, four batches of 8 on two cores (SDK 2.21)."""
    config = ResNetConfig(layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], num_labels=1000)
    config.architectures = ["ResNetForImageClassification"]
    report = estimate(config, instance="inf2.xlarge", batch_size=8, batches_in_flight=2)
    assert report.kind == "cnn" and report.throughput_per_s.low < 6949.17 < report.throughput_per_s.high
    assert report.latency_ms.low < 4.587 < report.latency_ms.high


def test_texts_and_images_have_their_own_throughput():
    options = {"task": "zero-shot-image-classification", "instance": "inf2.xlarge"}
    report = estimate(CLIP, text_batch_size=10, **options)
    rates = report.to_dict()["throughput_by_axis"]
    assert rates["images_per_s"]["value"] == report.throughput_per_s.value
    assert rates["texts_per_s"]["value"] == pytest.approx(10 * report.throughput_per_s.value)
    both = estimate(CLIP, batch_size=2, **options).throughput_by_axis
    assert both["texts_per_s"] == both["images_per_s"]
    assert estimate(BERT, instance="inf2.xlarge", sequence_length=16).throughput_by_axis == {}


def test_encoders_run_on_several_cores():
    two = estimate(BERT, instance="inf2.xlarge", sequence_length=16, tensor_parallel_size=2)
    one = estimate(BERT, instance="inf2.xlarge", sequence_length=16)
    assert (one.num_cores.value, two.num_cores.value, two.num_copies.value) == (1, 2, 1)
    assert two.memory["weights"] < one.memory["weights"] and two.parts_ms["forward"]["link"] > 0
    for value in (3, 0, "two"):
        with pytest.raises(ConfigError):
            estimate(BERT, instance="inf2.xlarge", sequence_length=16, tensor_parallel_size=value)


GIVEN = {
    "batch_size": 2,
    "sequence_length": 16,
    "input_length": 8,
    "output_length": 4,
    "concurrency": 1,
    "batches_in_flight": 1,
    "prefix_hit_rate": 1.0,
    "task": "fill-mask",
    "acceptance_rate": 1.0,
    "num_inference_steps": 1,
    "guidance_scale": 1.0,
    "data_parallel_mode": "none",
    "tensor_parallel_size": 2,
    "dtype": "bf16",
    "auto_cast": "none",
    "sdk": "2.20",
    "stack": "vllm",
    "example_inputs": (torch.zeros(1, 4),),
}
"""A valid value of each option, also one that equals what some models assume."""
PICTURES = {"num_inference_steps", "guidance_scale", "data_parallel_mode"}
ONLY_DECODERS = {"prefix_hit_rate", "acceptance_rate", "stack"}
OF_MODULES = {"auto_cast", "batches_in_flight", "example_inputs"}
ANSWERS = {"input_length", "output_length", "concurrency"}
WITHOUT_EFFECT = {
    "decoder": {*PICTURES, "batches_in_flight", "example_inputs"},
    "encoder": {*PICTURES, *ONLY_DECODERS, *ANSWERS, "example_inputs"},
    "encoder-decoder": {*PICTURES, *ONLY_DECODERS, "batches_in_flight", "example_inputs"},
    "module": {*GIVEN} - OF_MODULES,
    "compiled": {*GIVEN} - ANSWERS - {"sequence_length", "prefix_hit_rate", "acceptance_rate"},
}
"""Options that models ignore, so that they are errors: in words of docs/estimate.md."""


def subject(kind, export_folder):
    models = {
        "decoder": LLAMA,
        "encoder": BERT,
        "encoder-decoder": T5,
        "module": torch.nn.Linear(4, 4),
        "compiled": export_folder,
    }
    return models[kind], {"example_inputs": (torch.zeros(1, 4),)} if kind == "module" else {}


@pytest.mark.parametrize("kind", WITHOUT_EFFECT)
def test_options_without_effect_are_errors(kind, export_folder):
    model, needed = subject(kind, export_folder)
    for name in sorted(WITHOUT_EFFECT[kind]):
        with pytest.raises(ConfigError) as error:
            estimate(model, instance="inf2.xlarge", **needed, **{name: GIVEN[name]})
        assert error.value.details["options"] == [name], name


def test_options_of_several_kinds_are_errors_together():
    with raises(ConfigError, options=["input_length", "stack"]):
        estimate(BERT, instance="inf2.xlarge", input_length=8, stack="vllm")
    with raises(ConfigError, options=["batch_size", "quantization"]):
        estimate(torch.nn.Linear(4, 4), example_inputs=(torch.zeros(1, 4),), batch_size=2, quantization="int8")


def test_compiled_encoder_decoder_rejects_the_length_of_a_sequence():
    captured = capture_model(source_of(T5, {}), task="text2text-generation", sequence_length=32)
    report = estimate_program(captured.program, captured.config, name="t5", instance="inf2.xlarge", input_length=16)
    assert report.kind == "seq2seq" and report.padding.input_tokens == 16
    for options, details in (
        ({"sequence_length": 16}, {"options": ["sequence_length"]}),
        ({"input_length": 33}, {"input_length": 33, "compiled": 32}),
        ({"output_length": 4096}, {"output_length": 4096, "compiled": captured.config.decoder_sequence_length}),
    ):
        with raises(ConfigError, **details):
            estimate_program(captured.program, captured.config, name="t5", instance="inf2.xlarge", **options)
