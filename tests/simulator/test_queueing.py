"""Queues: against known formulas, and otherwise against invariants."""

from __future__ import annotations

import dataclasses
import math

import pytest
from transformers import AutoConfig

from optimum_neuron.errors import ConfigError
from optimum_neuron.simulator import compare, estimate
from optimum_neuron.simulator.queueing import load_on, simulate_waits, under_load
from optimum_neuron.simulator.result import Quantity
from tests.raising import raises
from tests.simulator.pool import POOL

LLAMA = AutoConfig.for_model("llama", hidden_size=512, num_hidden_layers=2, num_attention_heads=8, vocab_size=1000)


def mean_wait(**queue) -> float:
    return simulate_waits(num_requests=200_000, **queue).mean_s


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
def test_one_server_follows_pollaczek_khinchine(busy):
    expected = busy / (2 * (1 - busy))  # services of one second
    assert mean_wait(requests_per_s=busy, service_s=1.0, num_servers=1) == pytest.approx(expected, rel=0.04)


def test_one_server_has_percentile_of_erlang():
    # Erlang 1909: P(wait <= t) of M/D/1 = (1 - a) * sum over k of (a (k - t))^k / k! * exp(-a (k - t)), k <= t.
    def below(t: float, a: float) -> float:
        parts = [(-a * (t - k)) ** k / math.factorial(k) * math.exp(a * (t - k)) for k in range(int(t) + 1)]
        return (1 - a) * sum(parts)

    result = simulate_waits(requests_per_s=0.6, service_s=1.0, num_servers=1, num_requests=200_000).p95_s
    assert below(result, 0.6) == pytest.approx(0.95, abs=0.005)


@pytest.mark.parametrize(("servers", "busy"), [(2, 0.6), (4, 0.8), (12, 0.9)])
def test_several_servers_follow_allen_cunneen(servers, busy):
    offered = servers * busy
    last = offered**servers / math.factorial(servers) / (1 - busy)
    all_busy = last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)  # Erlang's C
    expected = all_busy / (servers * (1 - busy)) / 2
    actual = mean_wait(requests_per_s=offered, service_s=1.0, num_servers=servers)
    assert actual == pytest.approx(expected, rel=0.12)  # an approximation for more than one server


def test_batch_serves_waiting_requests():
    queue = {"service_s": 1.0, "num_servers": 1}
    one, eight = (mean_wait(requests_per_s=0.5, batch_size=size, **queue) for size in (1, 8))
    assert 0.2 < eight < one  # a request that finds the server at work waits for half a service
    full = mean_wait(requests_per_s=7.6, batch_size=8, **queue)
    assert eight < full < 10
    assert mean_wait(requests_per_s=4.0, batch_size=8, **queue) < 1.5


def test_same_load_has_same_waits():
    queue = {"requests_per_s": 3.0, "service_s": 0.2, "num_servers": 1, "num_requests": 1000}
    assert simulate_waits(**queue) == simulate_waits(**queue)


def load(rate: float, **changes):
    service = Quantity(value=100.0, low=80.0, high=125.0, limited_by="dma")
    inputs = {"num_servers": 2, "batch_size": 1, "num_copies": 2, "room": 2, "price_usd_per_h": 0.76}
    return load_on(requests_per_s=rate, service_ms=service, **{**inputs, **changes})


def test_load_reports_utilization_and_latency():
    report = load(10.0)
    assert report.utilization.value == pytest.approx(0.5) and report.utilization.high == pytest.approx(0.625)
    waits = simulate_waits(requests_per_s=10.0, service_s=0.1, num_servers=2)
    assert report.wait_mean_ms.value == pytest.approx(1000 * waits.mean_s)
    assert report.wait_p95_ms.value == pytest.approx(1000 * waits.p95_s)
    assert 0 < report.wait_mean_ms.low < report.wait_mean_ms.value < report.wait_mean_ms.high
    assert report.wait_mean_ms.value < report.wait_p95_ms.value
    assert (report.num_copies, report.num_instances, report.usd_per_h) == (2, 1, 0.76)


def test_overload_reports_required_cores():
    report = load(18.0)
    assert report.wait_mean_ms.value < math.inf == report.wait_mean_ms.high
    assert report.to_dict()["wait_mean_ms"]["high"] is None
    assert report.num_copies == 3 and report.num_instances == 2
    crowded = load(19.2).note
    assert crowded.startswith(report.note) and crowded != report.note
    more = load(45.0)
    assert more.wait_mean_ms.value == math.inf and "cannot keep up" in more.note
    assert more.num_copies == 6 and more.usd_per_h == pytest.approx(3 * 0.76)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_rate_is_number_above_zero(rate):
    with raises(ConfigError, option="requests_per_s"):
        load(rate)


def test_decoder_slots_and_encoder_batches_are_servers():
    one, four = (
        estimate(LLAMA, instance="inf2.xlarge", sequence_length=512, batch_size=rows, requests_per_s=2.0)
        for rows in (1, 4)
    )
    assert four.load.utilization.value == pytest.approx(2.0 / four.throughput_per_s.value, rel=0.02)
    assert four.load.wait_p95_ms.value < one.load.wait_p95_ms.value
    chunks = dataclasses.replace(POOL, num_prompt=8, num_answer=1)  # a request is one chunk of 1.5 seconds
    pooled = under_load(dataclasses.replace(one, served_pool=chunks), 100.0, room=2)
    assert pooled.load.utilization.value == pytest.approx(100.0 * 1.5 / one.num_copies.value)
    assert pooled.load.utilization.high == pytest.approx(
        pooled.load.utilization.value * one.latency_ms.high / one.latency_ms.value
    )
    bert = AutoConfig.for_model("bert", num_hidden_layers=1, hidden_size=64, num_attention_heads=2)
    bert.architectures = ["BertModel"]
    report = estimate(bert, instance="inf2.xlarge", sequence_length=32, batch_size=4, requests_per_s=100.0)
    assert report.load.utilization.value == pytest.approx(100.0 / report.throughput_per_s.value)
    assert report.to_dict()["load"]["num_copies"] == 1 and estimate(bert, sequence_length=32).load is None


def test_load_decides_the_cheapest_instance():
    result = compare(LLAMA, requests_per_s=1.0, instance="trn1", sequence_length=512, optimize="cost")
    prices = [one.load.usd_per_h for one in result.ranked]
    assert prices == sorted(prices) and "an hour" in result.best.reason


@pytest.mark.full(days=3)
def test_command_reports_sufficient_instances(cli, checkpoint):
    command = ("neuron", "estimate", str(checkpoint), "--instance", "inf2.xlarge", "--sequence_length", "64")
    process = cli(*command, "--requests_per_s", "3")
    assert (
        process.code == 0
        and "3 requests arrive each second" in process.stdout
        and "to keep up: 1 copy" in process.stdout
    )
    assert cli(*command, "--requests_per_s", "1e6", "--json").json["load"]["wait_mean_ms"]["value"] is None
    error = cli(*command, "--requests_per_s", "0")
    assert error.code == 1 and "requests_per_s=0.0" in error.stderr
    result = cli(*command, "--requests_per_s", "3", "--compare")
    assert result.code == 0 and "instances  per hour" in result.stdout
