"""Scheduling without a device, and estimates of what an export would compile: quantized, with adapters, with checks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from transformers import AutoConfig

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.batching import SimulatedTimes
from optimum_neuron.errors import ConfigError
from optimum_neuron.simulator import (
    EstimateRequest,
    capture_model,
    constants,
    estimate,
    simulate_requests,
    tokens_per_check,
)
from optimum_neuron.simulator.compiled import serving_plan_of
from optimum_neuron.simulator.continuous import capacity_per_s, summarize
from optimum_neuron.sources import load_source
from tests.simulator.pool import POOL
from tests.tiny import save_tiny, tiny_config

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
OPTIONS = {"quantization": "int4", "max_loras": 2, "max_lora_rank": 4, "sequence_length": 32, "extend_length": 1}


def test_a_request_alone_takes_its_chunks_and_steps():
    (times,) = simulate_requests(POOL, [10.0])
    assert (times.wait_s, times.ttft_s) == (0.0, 2 * 1.5)
    assert times.tpot_s == 0.125 + 0.25 + 0.125
    assert times.latency_s == times.ttft_s + 2 * times.tpot_s


def test_a_chunk_delays_the_answers_of_others():
    first, second = simulate_requests(POOL, [0.0, 0.5])
    assert second.wait_s == 3.0 - 0.5 and second.ttft_s == 3.0 - 0.5 + 2 * 1.5 + 0.5
    assert first.tpot_s == 1.5 + 0.5  # a chunk before each of its steps


def test_long_rows_go_through_their_own_graph():
    pool = dataclasses.replace(POOL, num_answer=6)
    (times,) = simulate_requests(pool, [0.0])
    steps = 4 * 0.125 + 0.25 + 5 * 0.375  # slots 13 to 16, then 17
    assert times.latency_s == pytest.approx(3.0 + steps)


def test_preempted_requests_wait_for_copies():
    pool = dataclasses.replace(POOL, num_answer=9)
    together = simulate_requests(pool, [0.0, 0.0])
    free = simulate_requests(dataclasses.replace(pool, num_blocks=20), [0.0, 0.0])
    copied_s = 2 * 3.0 * 4  # four blocks, out and back
    assert together[1].latency_s > free[1].latency_s + copied_s


def test_capacity_is_that_of_a_busy_engine():
    chunks = dataclasses.replace(POOL, num_prompt=8, num_answer=1)  # a request is one chunk
    assert capacity_per_s(chunks) == pytest.approx(1 / 1.5)


def test_summary_has_means_and_percentiles_of_numpy():
    ends = np.random.default_rng(0).permutation(np.arange(1.0, 21.0))
    times = [SimulatedTimes(arrival_s=0.0, start_s=0.5 * e, first_token_s=e, end_s=3 * e, num_tokens=3) for e in ends]
    summary = summarize(times)
    for name, values_s in {"wait": 0.5 * ends, "ttft": ends, "tpot": ends, "latency": 3 * ends}.items():
        assert summary[f"{name}_mean_ms"] == pytest.approx(1000 * values_s.mean())
        for percent in (90, 95):
            above_ms = 1000 * np.percentile(values_s, percent, method="higher")
            assert summary[f"{name}_p{percent}_ms"] == pytest.approx(above_ms)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("small") / "llama", "llama", **SMALL)


@pytest.mark.full(days=2)
def test_ends_of_prompts_run_through_the_graph_of_their_length(source):
    blocks = {"continuous_batching": True, "block_size": 8, "prefill_buckets": (8, 16), "decode_buckets": (24, 48)}
    options = {"task": "text-generation", "batch_size": 2, "sequence_length": 48, "extend_length": 1}
    program = capture_model(load_source(source, with_weights=False), **options, **blocks).program
    runs = {}
    for prompt in (5, 16, 21, 33, 45):
        request = EstimateRequest(sequence_length=48, output_length=48 - prompt)
        plan = serving_plan_of(program, request, auto_cast="none").value
        runs[prompt] = (plan.prefill.name, plan.num_prefills, plan.prefill_end and plan.prefill_end.name)
    assert runs == {
        5: ("prefill_24_of_8", 2, None),
        16: ("prefill_24", 2, None),
        21: ("prefill_24", 2, "prefill_24_of_8"),
        33: ("prefill_48", 4, "prefill_48_of_8"),
        45: ("prefill_48", 4, "prefill_48"),
    }


@pytest.mark.full(days=2)
def test_quantized_model_with_adapters_is_estimated_as_its_export(source, tmp_path):
    model = NeuronModelForCausalLM.from_pretrained(
        source, export=True, optlevel="1", disable_validation=True, torch_dtype="bfloat16", **OPTIONS
    )
    model.save_pretrained(tmp_path)
    model.close()
    exported = estimate(tmp_path)
    result = estimate(source, dtype="bf16", **OPTIONS)
    assert result.quantities == exported.quantities and result.memory == exported.memory
    assert result.memory["weights"] == model.loaded.need.weights and result.parts_ms == exported.parts_ms
    assert any("quantization=int4" in assumption for assumption in result.assumptions)


def test_published_weights_are_read_as_they_are_stored():
    config, plain = (tiny_config("llama", **SMALL, architectures=["LlamaForCausalLM"]) for _ in range(2))
    config.quantization_config = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}
    shapes = {"sequence_length": 32, "dtype": "bf16"}
    stored = estimate(config, **shapes)
    assert stored.memory["weights"] < 0.6 * estimate(plain, **shapes).memory["weights"]
    assert "int4-g32-zp" in stored.notes[-1]


def test_a_check_adds_the_expected_tokens(export_folder):
    plain = estimate(export_folder, output_length=8)
    result = estimate(export_folder, output_length=8, acceptance_rate=0.5, num_speculative_tokens=3)
    (check,) = [name for name in result.parts_ms if name.startswith("extend")]
    host_ms = constants().hosts["nxd-inference"].token_ms
    assert result.speculation["tokens_per_check"] == 1 + 0.5 + 0.25 + 0.125 == (1 - 0.5**4) / (1 - 0.5)
    device_ms = 1.875 * result.tpot_ms.value - host_ms
    assert device_ms >= max(result.parts_ms[check].values()) and result.ttft_ms == plain.ttft_ms
    assert result.to_dict()["speculation"]["draft_ms"] == 0 and plain.to_dict()["speculation"] is None
    small = AutoConfig.for_model("llama", **SMALL)
    heads, model = (
        estimate(export_folder, output_length=8, acceptance_rate=0.5, num_speculative_tokens=3, **draft)
        for draft in ({"draft_parameters": 10**9}, {"draft_model": small})
    )
    read_ms = 2e9 / 272e9 * 1e3
    assert 1.875 * (heads.tpot_ms.value - result.tpot_ms.value) == pytest.approx(read_ms, rel=0.25)
    draft_ms = model.speculation["draft_ms"]
    assert draft_ms == pytest.approx(3 * estimate(small, stack="nxd-inference", output_length=8).tpot_ms.value)
    assert 1.875 * (model.tpot_ms.value - result.tpot_ms.value) == pytest.approx(draft_ms)


def test_all_candidates_may_be_accepted():
    assert tokens_per_check(1.0, 4) == 5 and tokens_per_check(0.0, 4) == 1
    assert tokens_per_check(0.8, 4) == pytest.approx((1 - 0.8**5) / 0.2)


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"acceptance_rate": 1.5}, "acceptance_rate"),
        ({"acceptance_rate": -0.1}, "acceptance_rate"),
        ({"acceptance_rate": float("nan")}, "acceptance_rate"),
        ({"num_speculative_tokens": 3}, "acceptance_rate"),
        ({"draft_parameters": 3}, "acceptance_rate"),
        ({"acceptance_rate": 0.5, "num_speculative_tokens": 0}, "num_speculative_tokens"),
        ({"acceptance_rate": 0.5, "num_speculative_tokens": 100}, "num_speculative_tokens"),
        ({"acceptance_rate": 0.5, "draft_parameters": 0}, "draft_parameters"),
    ],
)
def test_impossible_speculation_is_one_error(export_folder, options, option):
    with pytest.raises(ConfigError) as error:
        estimate(export_folder, **options)
    assert error.value.details["option"] == option


@pytest.mark.parametrize(
    "options",
    [
        {"continuous_batching": True, "acceptance_rate": 0.5},
        {"quantization": "int8", "stack": "vllm"},
        {"quantization": "int3"},
        {"height": 3, "quantization": "int8"},
    ],
)
def test_options_of_an_export_that_cannot_be_estimated(source, options):
    with pytest.raises(ConfigError):
        estimate(source, sequence_length=32, **options)
