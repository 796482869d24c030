"""A capacity plan agrees with an estimate under the same load, and says what it is for."""

from __future__ import annotations

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.simulator import Trace, continuous, estimate, parse_slo, plan_capacity, poisson_trace
from optimum_neuron.simulator.capacity.trace import TraceRequest
from tests.tiny import tiny_config

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "max_position_embeddings": 128}
OPTIONS = {"instance": "inf2.xlarge", "batch_size": 4, "prefill_chunk_size": 32, "extend_length": 1}


@pytest.fixture(scope="module")
def config():
    return tiny_config("llama", **SMALL, architectures=["LlamaForCausalLM"])


@pytest.mark.full(days=2)
def test_it_agrees_with_an_estimate_of_the_same_load(config, monkeypatch):
    monkeypatch.setattr(continuous, "NUM_TOKENS", 40_000)
    lengths = {"input_length": 72, "output_length": 24}
    single = estimate(config, continuous_batching=True, sequence_length=96, data_parallel_size=1, **lengths, **OPTIONS)
    per_s = 0.7 * single.quantities["throughput_per_s"].value
    load = estimate(
        config,
        continuous_batching=True,
        sequence_length=96,
        data_parallel_size=1,
        requests_per_s=per_s,
        **lengths,
        **OPTIONS,
    ).load
    trace = poisson_trace(per_s, num_requests=1500, num_prompt=72, num_answer=24)
    plan = plan_capacity(config, trace, num_replicas=1, **OPTIONS)
    assert plan.sequence_length.value == 96 and plan.num_instances == 1
    for name, ours in {"ttft": "ttft", "tpot": "tpot", "latency": "e2el"}.items():
        assert plan.numbers[f"mean_{ours}_ms"] == pytest.approx(load.served[f"{name}_mean_ms"].value, rel=0.1)
        assert plan.numbers[f"p90_{ours}_ms"] == pytest.approx(load.served[f"{name}_p90_ms"].value, rel=0.1)
        low, high = plan.interval[f"mean_{ours}_ms"]
        assert low < plan.numbers[f"mean_{ours}_ms"] < high


def test_the_price_of_tokens_is_that_of_all_instances(config):
    trace = poisson_trace(5.0, num_requests=20, num_prompt=20, num_answer=8)
    plan = plan_capacity(config, trace, num_replicas=3, price=2.0, slo=parse_slo("ttft=1000"), **OPTIONS)
    data = plan.to_dict()
    assert data["simulated"] and data["num_instances"] == 2 and data["usd_per_h"] == 4.0
    usd = 4.0 * plan.numbers["duration"] / 3600 / plan.numbers["total_output_tokens"] * 1e6
    assert data["usd_per_1m_output_tokens"] == pytest.approx(usd)
    assert data["meets_slo"] and data["num_replicas"]["reason"] == "num_replicas=3"
    assert data["configuration"]["batch_size"] == 4 and any("simulated" in one for one in data["assumptions"])


def test_longer_requests_than_the_model_holds_are_rejected(config):
    requests = (TraceRequest(0.0, 20, 4), TraceRequest(1.0, 200, 4))
    plan = plan_capacity(config, Trace(source="a test", requests=requests), **OPTIONS)
    assert plan.sequence_length.value == 128 and plan.numbers["rejected"]["too_long"] == 1


def test_requests_without_arrivals_need_a_rate(config):
    trace = Trace(source="a test", requests=(TraceRequest(0.0, 4, 4),), has_arrivals=False)
    with pytest.raises(ConfigError) as error:
        plan_capacity(config, trace, **OPTIONS)
    assert error.value.details["option"] == "request_rate"


def test_a_model_without_continuous_batching_serves_no_trace(export_folder):
    trace = poisson_trace(5.0, num_requests=2, num_prompt=4, num_answer=2)
    with pytest.raises(ConfigError) as error:
        plan_capacity(export_folder, trace)
    assert error.value.details["option"] == "continuous_batching"
