"""Estimates: every quantity with an interval, and every error with a remedy."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from transformers import AutoConfig, BertConfig, ResNetConfig

from optimum_neuron.errors import ConfigError, DeviceMemoryError, ModelError
from optimum_neuron.simulator import QUANTITIES, compare, constants, estimate, estimate_grid, estimate_training
from tests.raising import raises

SMALL = AutoConfig.for_model(
    "llama", hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, vocab_size=1000
)
ENCODER = BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
ENCODER.architectures = ["BertForSequenceClassification"]
LARGE = AutoConfig.for_model(
    "llama",
    hidden_size=8192,
    intermediate_size=28672,
    num_hidden_layers=80,
    num_attention_heads=64,
    num_key_value_heads=8,
    vocab_size=128256,
    max_position_embeddings=8192,
)
EIGHT = AutoConfig.for_model(
    "llama", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_key_value_heads=8, vocab_size=128256
)


def test_decoder_has_every_quantity_with_interval():
    report = estimate(SMALL, instance="inf2.xlarge", sequence_length=512, batch_size=2)
    assert set(report.quantities) == set(QUANTITIES)
    for quantity in report.quantities.values():
        assert 0 < quantity.low <= quantity.value <= quantity.high and quantity.limited_by
    usd, rate = report.usd_per_1m, report.throughput_per_s  # the price falls where the rate rises
    assert (usd.low * rate.high, usd.high * rate.low) == pytest.approx([usd.value * rate.value] * 2)
    data = report.to_dict()
    assert data["simulated"] is True and data["assumptions"]
    assert data["tpot_ms"].keys() == {"value", "low", "high", "limited_by"}


def test_large_decoder_needs_no_weights():
    report = estimate(LARGE, instance="trn1.32xlarge", tensor_parallel_size=32, sequence_length=2048)
    repeated = 80 * 8192 * (2 * 128 - 2 * 8 * 128 / 32)  # 8 key-value heads on 32 cores
    assert report.memory["weights"] == pytest.approx(2 * (70.55e9 / 32 + repeated), rel=0.001)
    assert report.bounds["decode"] < report.tpot_ms.value


def test_more_cores_are_quicker_and_longer_sequences_are_not():
    one, two = (estimate(SMALL, instance="inf2.xlarge", tensor_parallel_size=n, sequence_length=2048) for n in (1, 2))
    assert two.memory["weights"] < one.memory["weights"]
    long = estimate(SMALL, instance="inf2.xlarge", tensor_parallel_size=1, sequence_length=2048, batch_size=64)
    assert long.tpot_ms.value > one.tpot_ms.value
    assert long.hbm_bytes_per_step.value > one.hbm_bytes_per_step.value


def test_sdk_decides_stack_and_reason_is_reported():
    old, new = (estimate(SMALL, instance="inf2.xlarge", sdk=sdk, sequence_length=2048) for sdk in ("2.18", "2.27"))
    assert "transformers-neuronx" in old.assumptions[0] and "vllm" in new.assumptions[0]
    assert old.ttft_ms.value != new.ttft_ms.value


def test_encoder_is_estimated_from_its_graph():
    bert = BertConfig(num_hidden_layers=2, hidden_size=128, num_attention_heads=2, intermediate_size=256)
    bert.architectures = ["BertForSequenceClassification"]
    report = estimate(bert, instance="inf2.xlarge", sequence_length=32, batch_size=4)
    assert report.kind == "encoder" and report.num_copies.value == 2
    assert report.throughput_per_s.value == pytest.approx(2 * 4 / report.latency_ms.value * 1e3)
    assert report.tpot_ms is None and report.to_dict()["tpot_ms"] is None


def test_cnn_from_convolutions():
    resnet = ResNetConfig(depths=[1, 1, 1, 1], hidden_sizes=[64, 64, 64, 64], embedding_size=64)
    resnet.architectures = ["ResNetForImageClassification"]
    report = estimate(resnet, instance="inf2.xlarge", height=64, width=64)
    assert report.kind == "cnn"


def test_any_module_with_example_inputs():
    report = estimate(torch.nn.Linear(64, 64), instance="trn1.2xlarge", example_inputs=(torch.zeros(8, 64),))
    assert report.kind == "graph" and report.latency_ms.high / report.latency_ms.low > 4
    with raises(ConfigError, option="example_inputs"):
        estimate(torch.nn.Linear(64, 64), instance="trn1.2xlarge")


def test_operators_of_unknown_size_are_reported():
    class Picks(torch.nn.Module):
        def forward(self, x):
            return x.nonzero()

    report = estimate(Picks(), instance="inf2.xlarge", example_inputs=(torch.ones(4),))
    assert report.unknown and any("not counted" in note for note in report.notes)


def test_compiled_model_estimates_itself(model, export_folder):
    report = model.estimate(instance="inf2.8xlarge", output_length=8)
    assert report.instance.value == "inf2.8xlarge" and "decode" in str(report.parts_ms)
    second = estimate(export_folder, instance="inf2.8xlarge", output_length=8)
    assert second.tpot_ms == report.tpot_ms
    neff = estimate(export_folder / "model.neuron", instance="inf2.8xlarge", output_length=8)
    assert neff.tpot_ms.value == pytest.approx(report.tpot_ms.value)
    with raises(ConfigError, options=["batch_sizes"]):
        model.estimate(batch_sizes=3)


@pytest.mark.parametrize(
    ("options", "details"),
    [
        ({"instance": "inf3.xlarge"}, {"name": "inf3.xlarge"}),
        ({"instance": "inf1.xlarge"}, {"target": "inf1"}),
        ({"instance": "trn1.32xlarge", "tensor_parallel_size": 3}, {"num_cores": 3, "legal": [1, 2, 8, 16, 32]}),
        ({"tensor_parallel_size": 7}, {"num_cores": 7, "legal": [1, 2]}),
        ({"batch_size": 0}, {"option": "batch_size", "value": 0}),
        ({"batch_size": -4}, {"option": "batch_size", "value": -4}),
        ({"sequence_length": 10**9}, {"option": "sequence_length", "value": 10**9}),
        ({"sequence_length": 64, "output_length": 64}, {"sequence_length": 64, "output_length": 64}),
        ({"sequence_length": 64, "input_length": 64}, {"sequence_length": 64, "input_length": 64}),
        (
            {"sequence_length": 64, "input_length": 40, "output_length": 25},
            {"sequence_length": 64, "input_length": 40, "output_length": 25},
        ),
        ({"input_length": 0}, {"option": "input_length", "value": 0}),
        ({"prefix_hit_rate": 0.5}, {"option": "prefix_hit_rate", "value": 0.5}),
        ({"prefix_hit_rate": 1.5}, {"option": "prefix_hit_rate", "value": 1.5}),
        ({"prefix_hit_rate": -0.1, "continuous_batching": True}, {"option": "prefix_hit_rate", "value": -0.1}),
        ({"batches_in_flight": 2}, {"options": ["batches_in_flight"]}),
        ({"height": 512, "width": 512}, {"options": ["height", "width"]}),
        ({"num_speculative_tokens": 4}, {"option": "acceptance_rate"}),
        (
            {"acceptance_rate": 0.5, "draft_model": SMALL, "draft_parameters": 10**8},
            {"options": ["draft_model", "draft_parameters"]},
        ),
        ({"acceptance_rate": 0.5, "draft_model": ENCODER}, {"option": "draft_model"}),
        ({"batches_in_flight": 0}, {"option": "batches_in_flight", "value": 0}),
        ({"batches_in_flight": True}, {"option": "batches_in_flight", "value": True}),
        ({"sdk": "two"}, {"option": "sdk", "value": "two"}),
        ({"stack": "vlm"}, {"option": "stack", "value": "vlm"}),
        ({"price": -1.0}, {"option": "price", "value": -1.0}),
        ({"dtype": "int3"}, {"option": "dtype", "value": "int3"}),
        ({"data_parallel_size": 99}, {"option": "data_parallel_size", "value": 99, "most": 2}),
        ({"heigth": 3}, {"options": ["heigth"]}),
    ],
)
def test_bad_input_is_refused(options, details):
    with raises(ConfigError, **details):
        estimate(SMALL, **{"instance": "inf2.xlarge", **options})


def test_too_large_model_reports_what_would_fit():
    with raises(DeviceMemoryError, fitting_core_counts=[16, 32]) as error:
        estimate(LARGE, instance="trn1.32xlarge", tensor_parallel_size=8, sequence_length=2048)
    assert error.value.details["hbm_bytes"]["weights"] > 16 * 2**30
    assert "tensor_parallel_size=16" in error.value.hint and "fitting_instances" not in error.value.details


@pytest.mark.parametrize(("instance", "noted"), [("trn2.3xlarge", "Trainium2"), ("trn3-gen1-ultraserver", "Trainium3")])
def test_unpublished_facts_are_reported(instance, noted):
    report = estimate(SMALL, instance=instance, sequence_length=512)
    assert report.usd_per_1m is None and any("--price" in note for note in report.notes)
    assert any(noted in note for note in report.notes)
    result = estimate(SMALL, instance=instance, sequence_length=512, price=40.0)
    assert result.usd_per_1m is not None and result.ttft_ms.high / result.ttft_ms.low > 3


def test_comparison_is_ranked_with_reasons():
    result = compare(SMALL, instance="inf2", sequence_length=512, optimize="throughput")
    rates = [one.throughput_per_s.value for one in result.ranked]
    assert rates == sorted(rates, reverse=True)
    assert result.best.rejected and "requests a second" in result.best.reason
    first, *others = (one.throughput_per_s for one in result.ranked)
    close = [one.high >= first.low for one in others][: len(result.best.rejected)]  # none has a higher value
    assert ["within the interval" in one.reason for one in result.best.rejected] == close
    big = compare(LARGE, instance="inf2", sequence_length=2048)
    cheapest, other = (one.usd_per_1m for one in big.ranked[:2])
    assert other.low <= cheapest.high and "within the interval" in big.best.rejected[0].reason
    assert "inf2.xlarge" in big.skipped
    assert {one.instance.value for one in big.ranked} == {"inf2.24xlarge", "inf2.48xlarge"}
    with raises(ConfigError, option="optimize", value="costs"):
        compare(SMALL, optimize="costs")
    with raises(ConfigError, option="price", value=2.0):
        compare(SMALL, price=2.0)
    with raises(ConfigError, num_cores=7, legal=[1, 2]):
        compare(SMALL, instance="inf2.xlarge", tensor_parallel_size=7)
    with raises(ConfigError) as error:
        compare(LARGE, instance="inf2.xlarge", sequence_length=2048)
    assert list(error.value.details["skipped"]) == ["inf2.xlarge"]


def test_instances_without_a_published_price_come_last():
    free = compare(SMALL, instance="trn2.3xlarge", sequence_length=512)
    assert all(one.usd_per_1m is None for one in free.ranked) and "--price" in free.best.reason
    priced = compare(SMALL, instance="trn2.3xlarge", sequence_length=512, price=9.0)
    assert all(one.usd_per_1m is not None for one in priced.ranked) and "dollars" in priced.best.reason


def test_grid_is_of_decoders_whose_sizes_are_free(export_folder):
    bert = estimate(ENCODER, instance="inf2.xlarge", sequence_length=64)
    assert estimate_grid(export_folder, instance="inf2.xlarge") == []
    assert estimate_grid(ENCODER, bert, instance="inf2.xlarge") == []


def test_what_is_no_model_is_refused():
    with raises(ConfigError, type="int"):
        estimate(3, instance="inf2.xlarge")


def test_training_uses_smallest_layout_that_fits():
    small = estimate_training(SMALL, sequence_length=512)
    assert small.layout.value == "TP=1 PP=1 DP=32"
    large = estimate_training(LARGE, num_instances=8, sequence_length=2048)
    assert sum(large.memory.values()) <= large.available_bytes and "TP=1 " not in large.layout.value
    assert large.quantities["tokens_per_s"].value < small.quantities["tokens_per_s"].value
    stages = [
        estimate_training(SMALL, sequence_length=512, pipeline_parallel_size=4, batch_size=size) for size in (32, 128)
    ]
    # 8 copies of 4 stages: a step of m microbatches lasts as long as m + 3.
    mfu = [one.quantities["mfu"].value for one in stages]
    assert mfu[1] / mfu[0] == pytest.approx((16 / (16 + 3)) / (4 / (4 + 3)))
    with raises(DeviceMemoryError) as error:
        estimate_training(LARGE, instance="trn1.2xlarge")
    assert "optimizer" in error.value.details["hbm_bytes"]
    with raises(ConfigError, num_cores=5, legal=[1, 2, 8, 16, 32]):
        estimate_training(SMALL, tensor_parallel_size=5)
    for layout in (
        {"tensor_parallel_size": 32},  # of 8 heads
        {"pipeline_parallel_size": 8},  # of 4 layers
        {"tensor_parallel_size": 8, "pipeline_parallel_size": 3},  # of 32 cores
    ):
        with raises(ConfigError, **layout):
            estimate_training(SMALL, **layout)


def test_core_has_at_most_eleven_constants_and_each_is_positive():
    for core in constants().cores.values():
        values = dataclasses.asdict(core)
        assert len(values) <= 11 and all(value > 0 for value in values.values())
    assert all(band.low <= 1 <= band.high for band in constants().bands.values())


def test_text_model_of_multimodal_model_is_estimated():
    llava = AutoConfig.for_model("llava", text_config=SMALL.to_dict())
    llava.architectures = ["LlavaForConditionalGeneration"]
    report = estimate(llava, instance="inf2.xlarge", sequence_length=256)
    assert report.kind == "decoder" and "text model alone" in report.notes[-1]
    alone = estimate(SMALL, instance="inf2.xlarge", sequence_length=256)
    assert report.tpot_ms.value == pytest.approx(alone.tpot_ms.value, rel=0.02)


@pytest.mark.full(days=2)
def test_encoder_decoder_reads_and_writes():
    t5 = AutoConfig.for_model("t5", d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=100)
    t5.architectures = ["T5ForConditionalGeneration"]
    found = compare(t5, instance="inf2.xlarge", sequence_length=32, output_length=8)
    report, two = sorted(found.ranked, key=lambda one: one.num_cores.value)
    assert report.kind == "seq2seq" and report.tpot_ms.value > 0 and "encode_32" in report.assumptions[0]
    assert report.ttft_ms.value > report.device_ms["encode_32"] + report.device_ms["prefill_32"]
    assert report.num_cores.value == 1 and two.num_cores.value == 2
    assert two.memory["weights"] < report.memory["weights"]
    assert estimate(t5, instance="inf2.xlarge", sequence_length=32, input_length=20).padding.share == 12 / 32


def test_smallest_larger_instance_is_named_and_fits():
    with raises(DeviceMemoryError) as error:
        estimate(LARGE, instance="inf2.xlarge", sequence_length=4096)
    assert error.value.details["fitting_instances"][0] == "inf2.24xlarge with tensor_parallel_size=12"
    assert estimate(LARGE, instance="inf2.24xlarge", tensor_parallel_size=12, sequence_length=4096)


def test_largest_batch_size_is_named():
    with raises(DeviceMemoryError) as error:
        estimate(LARGE, instance="inf2.48xlarge", sequence_length=4096, batch_size=70)
    rows = error.value.details["fitting_batch_size"]
    assert 60 <= rows < 70
    assert estimate(LARGE, instance="inf2.48xlarge", sequence_length=4096, batch_size=rows)
    with pytest.raises(DeviceMemoryError):
        estimate(LARGE, instance="inf2.48xlarge", sequence_length=4096, batch_size=rows + 1)


def test_tight_fit_may_not_fit():
    tight = estimate(EIGHT, instance="inf2.xlarge", tensor_parallel_size=1, sequence_length=2048)
    assert tight.fit == tight.to_dict()["fit"] == "may not fit"
    assert any("may not fit" in note for note in tight.notes)
    assert estimate(EIGHT, instance="inf2.xlarge", tensor_parallel_size=2, sequence_length=2048).fit == "fits"


def test_better_numbers_of_cores_are_named_unless_one_is_chosen():
    shapes = {"instance": "inf2.48xlarge", "sequence_length": 2048}
    free, chosen = estimate(EIGHT, **shapes), estimate(EIGHT, tensor_parallel_size=8, **shapes)
    (sooner,) = [note for note in free.notes if "answers sooner" in note]
    count = int(sooner.partition("=")[2].split()[0])
    assert count > free.num_cores.value
    assert estimate(EIGHT, tensor_parallel_size=count, **shapes).latency_ms.value < free.latency_ms.value
    assert not any("tensor_parallel_size" in note for note in chosen.notes)


def test_answer_takes_the_steps_of_all_its_buckets():
    shapes = {"instance": "inf2.48xlarge", "tensor_parallel_size": 8, "batch_size": 8, "stack": "nxd-inference"}
    grows = estimate(EIGHT, input_length=128, output_length=3968, **shapes)
    stays = estimate(EIGHT, input_length=2048, output_length=2048, **shapes)
    longest = [one.ttft_ms.value + tokens * one.tpot_ms.value for one, tokens in ((grows, 3968), (stays, 2048))]
    assert grows.latency_ms.value < 0.97 * longest[0] and stays.latency_ms.value == pytest.approx(longest[1])


def test_best_batch_is_found():
    found = compare(EIGHT, instance="inf2.xlarge", sequence_length=2048, batch_size="auto", optimize="cost")
    batches = [one.batch_size for one in found.ranked if one.num_cores.value == 2]
    assert {1, 2, 4} <= set(batches) and found.ranked[0].batch_size > 1
    assert found.best.value.endswith(f"batches of {found.ranked[0].batch_size}")


def test_options_of_other_models_are_named():
    with pytest.raises(ConfigError) as error:
        estimate(EIGHT, instance="inf2.xlarge", height=3)
    assert error.value.details["options"] == ["height"]


def test_decoder_without_attention_is_refused():
    with raises(ModelError, model_type="mamba"):
        estimate(AutoConfig.for_model("mamba", num_hidden_layers=1), instance="inf2.xlarge")
