"""A replay serves each request as the engine would, and counts those that a server would reject."""

from __future__ import annotations

import dataclasses

import pytest

from optimum_neuron.simulator import Trace, poisson_trace, simulate_requests
from optimum_neuron.simulator.capacity.over_time import over_time
from optimum_neuron.simulator.capacity.replay import replay_trace
from optimum_neuron.simulator.capacity.report import report_of
from optimum_neuron.simulator.capacity.slo import SLO
from optimum_neuron.simulator.capacity.trace import TraceRequest
from tests.simulator.pool import POOL


def trace_of(*requests):
    return Trace(source="a test", requests=tuple(TraceRequest(*one) for one in requests))


LONG = dataclasses.replace(
    POOL, num_rows=4, num_blocks=40, chunk_s={8: {128: 1.0}}, step_s={32: 0.3, 128: 0.7}, num_answer=60
)
"""Answers that cross the ends of blocks and graphs, and requests that give way to others."""


@pytest.mark.parametrize(("pool", "per_s"), [(POOL, 0.2), (LONG, 0.001), (LONG, 0.02), (LONG, 0.1), (LONG, 1.0)])
def test_one_replica_serves_as_the_engine(pool, per_s):
    """A replay plans the first of equal steps, and `simulate_requests` plans each."""
    trace = poisson_trace(per_s, num_requests=50, num_prompt=12, num_answer=pool.num_answer)
    served = replay_trace(pool, trace)
    one_by_one = simulate_requests(pool, [one.arrival_s for one in trace.requests])
    assert list(served.times) == one_by_one
    assert len(served.gaps_s) == 50 * (pool.num_answer - 1)
    answers_s = sum(times.end_s - times.first_token_s for times in one_by_one)
    assert served.gaps_s.sum() == pytest.approx(answers_s)


def test_a_request_goes_to_the_idle_replica():
    trace = trace_of((0.0, 12, 3), (0.5, 12, 3), (0.6, 12, 3))
    together, apart = (replay_trace(POOL, trace, num_replicas=count) for count in (1, 3))
    alone = simulate_requests(POOL, [0.0])[0]
    assert [one.ttft_s for one in apart.times] == [pytest.approx(alone.ttft_s)] * 3
    assert together.end_s > apart.end_s and apart.busy_share < together.busy_share == 1.0


def test_gaps_are_the_times_between_tokens():
    served = replay_trace(POOL, trace_of((1.0, 12, 3)))
    assert served.gaps_s.tolist() == [0.5, 0.5] and served.end_s == pytest.approx(1.0 + 3.0 + 1.0)


def test_rejected_requests_miss_the_objective():
    trace = trace_of((0.0, 12, 3), *[(0.1, 12, 3)] * 4, (0.2, 30, 3))
    served = replay_trace(POOL, trace, max_queue_size=2)
    numbers = report_of(served, slo=SLO(ttft_ms=1e6, attainment=0.5), usd_per_h=3.6)
    assert numbers["rejected"] == {"too_long": 1, "queue_full": 2} and numbers["completed"] == 3
    assert numbers["slo_attainment"] == 0.5 and numbers["meets_slo"]
    assert numbers["usd_per_1m_output_tokens"] == pytest.approx(1e-3 * served.end_s / 9 * 1e6)


def test_a_slower_device_takes_longer_for_the_same_arrivals():
    trace = trace_of((0.0, 12, 3), (100.0, 12, 3))
    fast, slow = (replay_trace(POOL, trace, slower=factor) for factor in (1.0, 2.0))
    assert [one.arrival_s for one in slow.times] == [0.0, 100.0]
    assert [one.ttft_s for one in slow.times] == pytest.approx([2 * one.ttft_s for one in fast.times])


def test_numbers_have_the_names_of_the_usual_benchmark():
    numbers = report_of(replay_trace(POOL, trace_of((0.0, 12, 3), (50.0, 8, 1))))
    assert numbers["mean_ttft_ms"] == pytest.approx(1e3 * (3.0 + 1.5) / 2)
    assert numbers["median_tpot_ms"] == numbers["p99_tpot_ms"] == 500  # an answer of one token has none
    assert numbers["total_input_tokens"] == 20 and numbers["total_output_tokens"] == 4
    assert numbers["request_throughput"] == pytest.approx(2 / numbers["duration"])


def test_without_answers_there_are_no_times():
    pool = dataclasses.replace(POOL, num_blocks=2)
    served = replay_trace(pool, trace_of((0.0, 12, 3)))
    assert over_time(served) == []
    numbers = report_of(served, slo=SLO(ttft_ms=1))
    assert numbers["completed"] == 0 and numbers["p99_ttft_ms"] is None and not numbers["meets_slo"]
