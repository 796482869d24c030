"""Estimates for Inf1 against published times; NeuronCore Pipeline, memory of a chip, and models that are refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import BertConfig, LlamaConfig, MarianConfig

from optimum_neuron import check_model, main_export
from optimum_neuron.errors import ConfigError, DeviceMemoryError
from optimum_neuron.hardware import pipeline_cores_of
from optimum_neuron.simulator import capture_model, compare, estimate, estimate_program, estimate_training
from optimum_neuron.simulator.entry import source_of
from optimum_neuron.simulator.machine import choose_copies, choose_machine
from tests.raising import raises
from tests.seq2seq import SIZES

BERT = BertConfig(architectures=["BertForSequenceClassification"])
"""BERT base."""


@pytest.fixture(scope="module")
def bert():
    return estimate(BERT, instance="inf1.xlarge", sequence_length=128, batch_size=6)


def test_bert_is_near_the_published_throughput(bert):
    # Neuron docs, Inf1 inference performance (SDK 2.20): 1180.7 sequences each second in batches of 6.
    assert bert.kind == "encoder" and bert.num_copies.value == 4
    assert bert.throughput_per_s.low <= 1180.7 <= bert.throughput_per_s.high
    assert bert.throughput_per_s.value == pytest.approx(1180.7, rel=0.25)


def test_a_core_alone_reads_at_a_higher_rate():
    layer, x = nn.Linear(4096, 4096), (torch.zeros(1, 4096),)
    alone, all_four = (
        estimate(layer, instance="inf1.xlarge", example_inputs=x, data_parallel_size=count) for count in (1, 4)
    )
    assert alone.latency_ms.value < all_four.latency_ms.value
    assert alone.latency_ms.limited_by == "dma"


def test_cores_of_inf1_share_no_layer(tmp_path):
    tiny = BertConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=99,
        architectures=["BertForSequenceClassification"],
    )
    tiny.save_pretrained(tmp_path)
    options = {"sequence_length": 16, "tensor_parallel_size": 2}
    for refused in (
        lambda: estimate(tiny, instance="inf1.xlarge", **options),
        lambda: check_model(tmp_path, instance_type="inf1", **options),
        lambda: main_export(tmp_path, tmp_path / "out", instance_type="inf1", **options),
    ):
        with raises(ConfigError, option="tensor_parallel_size", instance="inf1.xlarge"):
            refused()


def test_a_model_over_the_memory_of_a_chip_has_no_estimate():
    large = BertConfig(
        hidden_size=4096,
        num_hidden_layers=24,  # 5e9 weights: 10 GiB where neuron-cc rounds them
        num_attention_heads=32,
        intermediate_size=16384,
        architectures=["BertForSequenceClassification"],
    )
    with pytest.raises(DeviceMemoryError) as error:
        estimate(large, instance="inf1.xlarge", sequence_length=16)
    assert error.value.details["available"] == 8 * 2**30
    assert 9 * 2**30 < error.value.details["hbm_bytes"]["weights"] < 10 * 2**30


@pytest.mark.parametrize(("instance", "default"), [("inf1.xlarge", "all"), ("inf2.xlarge", "matmul")])
def test_float32_is_rounded_as_the_compiler_of_the_chip_does(instance, default):
    layers = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256))
    read = {
        auto_cast: estimate(
            layers, instance=instance, example_inputs=(torch.zeros(64, 256),), auto_cast=auto_cast
        ).hbm_bytes_per_step.value
        for auto_cast in (None, "none", "matmul", "all")
    }
    assert read["all"] < read["matmul"] < read["none"] and read[None] == read[default]


def test_gelu_of_eight_operators_is_one_pass_where_float32_is_rounded():
    sizes = {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128}
    written, one = (
        estimate(
            BertConfig(architectures=["BertForSequenceClassification"], hidden_act=activation, **sizes),
            instance="inf1.xlarge",
            sequence_length=16,
        )
        for activation in ("gelu_new", "gelu_pytorch_tanh")
    )
    assert written.latency_ms.value == pytest.approx(one.latency_ms.value, rel=1e-6)


def test_pipeline_raises_throughput_and_says_why_weights_fit():
    options = {"instance": "inf1.6xlarge", "sequence_length": 128, "data_parallel_size": 1}
    one, four = (estimate(BERT, pipeline_parallel_size=count, **options) for count in (1, 4))
    busy = estimate(BERT, pipeline_parallel_size=16, batches_in_flight=12, **options)
    assert [each.num_cores.value for each in (one, four, busy)] == [1, 4, 16]
    # Neuron docs (SDK 2.15): 1988.8 sequences each second over 16 cores, 12 requests in flight, 6.0 ms.
    assert busy.throughput_per_s.low <= 1988.8 <= busy.throughput_per_s.high
    assert busy.latency_ms.low <= 6.0 <= busy.latency_ms.high
    assert four.latency_ms.value < one.latency_ms.value < 2 * busy.latency_ms.value
    assert "do not fit" in four.notes[0] and "16 cores" in four.notes[0]
    assert "unequal" in busy.notes[0] and busy.hbm_bytes_per_core.value < one.hbm_bytes_per_core.value


def test_weights_that_fit_their_cores_are_not_read():
    layers = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048))
    report = estimate(layers, instance="inf1.xlarge", pipeline_parallel_size=2, example_inputs=(torch.zeros(1, 2048),))
    assert "all stay" in report.notes[0] and report.hbm_bytes_per_step.value == 0


def test_documented_number_of_cores():
    assert [pipeline_cores_of(count) for count in (1, 25_000_000, 110_000_000)] == [4, 4, 24]


def test_replicas_share_the_memory_of_their_chip():
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.empty(1_600_000_000, device="meta"))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.table * x

    report = estimate(Wide(), instance="inf1.6xlarge", example_inputs=(torch.zeros(1),))
    assert report.available_bytes == 8 * 2**30 and report.num_copies.value == 4 * 2
    machine = choose_machine("inf1.xlarge")  # 8 GiB hold two cores of 3 GiB: one replica of two
    assert choose_copies(machine, 2, None, bytes_of_core=3 * 2**30).value == 1


@pytest.mark.parametrize(
    ("options", "details"),
    [
        ({"instance": "inf1.xlarge", "pipeline_parallel_size": 5}, {"num_cores": 5, "instance": "inf1.xlarge"}),
        ({"instance": "inf2.xlarge", "pipeline_parallel_size": 2}, {"num_cores": 2, "instance": "inf2.xlarge"}),
        ({"instance": "inf1.xlarge", "pipeline_parallel_size": 0}, {"option": "pipeline_parallel_size", "value": 0}),
    ],
)
def test_pipelines_that_cannot_be_are_one_error(options, details):
    with raises(ConfigError, **details):
        estimate(nn.Linear(8, 8), example_inputs=(torch.zeros(1, 8),), **options)


def test_decoders_and_training_are_refused():
    decoder = LlamaConfig(num_hidden_layers=2, hidden_size=64, num_attention_heads=2, intermediate_size=64)
    with raises(ConfigError, target="inf1"):
        estimate(decoder, instance="inf1.xlarge", sequence_length=64)
    with raises(ConfigError, target="inf1"):
        estimate_training(decoder, instance="inf1.24xlarge")
    captured = capture_model(
        source_of(decoder, {}), task="text-generation", sequence_length=16, roles=("prefill", "decode")
    )
    with raises(ConfigError, target="inf1"):
        estimate_program(captured.program, captured.config, name="llama", instance="inf1.xlarge")


def test_text_encoder_decoder_is_estimated():
    marian = MarianConfig(architectures=["MarianMTModel"], **SIZES)
    report = estimate(marian, instance="inf1.xlarge", sequence_length=16, output_length=4)
    assert report.kind == "seq2seq" and report.target == "inf1"
    assert report.tpot_ms.high / report.tpot_ms.low > 4  # no published value


def test_sizes_of_inf1_are_compared_by_name():
    bert = BertConfig(num_hidden_layers=1, hidden_size=32, num_attention_heads=2, intermediate_size=64)
    bert.architectures = ["BertForSequenceClassification"]
    ranked = compare(bert, instance="inf1", sequence_length=16, optimize="cost").ranked
    assert {one.instance.value for one in ranked} == {"inf1.xlarge", "inf1.2xlarge", "inf1.6xlarge", "inf1.24xlarge"}
