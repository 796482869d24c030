"""Utilization on the simulated clock, latencies, and frequent readers."""

from __future__ import annotations

import dataclasses
import functools

import pytest

from optimum_neuron.tools.usage import COUNTING, Tracker, percentile, usage_between
from tests.tools import conftest
from tests.tools.conftest import graph

status = functools.partial(conftest.status, cores=(0, 1), core_ids=(0,))


@pytest.mark.parametrize(
    ("num_calls", "host_us", "percent"),
    [
        # 1 s of which the host simulated half, 100 calls of 2 ms each on the core: 0.2 of 0.5 + 0.2 s.
        (100, 500_000, 100 * 0.2 / 0.7),
        (1, 1_000_000, 100.0),  # nothing else was done: busy throughout, however slow the host is
        (1, 3_000_000, 100.0),  # a call that began before the first status
        (0, 0, 0.0),
        (500, 0, 50.0),  # a host that simulates in no time does not make the core busy for more than there is
    ],
)
def test_utilization_is_of_simulated_clock(num_calls, host_us, percent):
    usage = usage_between(status(10.0, graph(5, 1000)), status(11.0, graph(5 + num_calls, 1000 + host_us)))
    assert usage.cores[0].utilization_percent == pytest.approx(percent)
    assert usage.cores[1].utilization_percent == 0.0


def test_running_call_is_not_idle_time():
    # Of 1 s, 0.9 s went into a call that goes on; 10 ms of the chip ended before.
    first = status(10.0, graph(0, 0))
    second = status(11.0, graph(5, 50_000), running_us=850_000.0)
    assert usage_between(first, second).cores[0].utilization_percent == pytest.approx(100 * 0.01 / 0.11)
    # It ends after another 0.1 s: the time that it had taken before is not taken off twice.
    third = status(12.0, graph(6, 1_000_000))
    assert usage_between(second, third).cores[0].utilization_percent == pytest.approx(100 * 0.002 / 0.902)


def test_long_call_keeps_core_busy():
    usage = usage_between(status(10.0, running_us=5e6), status(11.0, running_us=6e6))
    assert usage.cores[0].utilization_percent == 100.0 and usage.calls == ()


def test_core_of_tensors_has_no_utilization_before_its_operators_are_counted():
    tensors = {"microcode": {"code": 96}, "torch tensors": {"kv_cache": 5}}
    after = status(1.0, graph(1, 1e6))
    cores = tuple(dataclasses.replace(core, hbm_bytes=tensors) for core in after.cores)
    usage = usage_between(status(0.0), dataclasses.replace(after, cores=cores))
    assert usage.cores[0].utilization_percent == 100.0  # tensors next to a loaded program
    assert (usage.cores[1].utilization_percent, usage.cores[1].unknown) == (None, COUNTING)
    assert usage.timed


def test_call_on_two_cores_keeps_both_busy():
    usage = usage_between(status(10.0), status(11.0, graph(100, 500_000)))
    assert usage.cores[0].flops_per_s == pytest.approx(100 * 1e9 / 0.7)
    usage = usage_between(status(0.0), status(1.0, graph(1, 1e6), core_ids=(0, 1)))
    assert [core.utilization_percent for core in usage.cores.values()] == [100.0, 100.0]


def test_untimed_calls_are_unknown_and_not_zero():
    usage = usage_between(status(0.0), status(1.0, graph(1, 10, device_us=None)))
    assert not usage.timed and usage.cores[0].utilization_percent is None and usage.cores[0].flops_per_s is None
    assert usage.latencies_s(launch=True) is None
    assert usage.cores[1].utilization_percent == 0.0


def test_reloaded_model_counts_from_zero():
    usage = usage_between(status(0.0, graph(50, 9e5)), status(1.0, graph(3, 100), model_id=2))
    assert [(calls.model_id, calls.num_calls) for calls in usage.calls] == [(2, 3)]
    assert 0 < usage.cores[0].utilization_percent < 1  # the host's time for the first load is not taken off


def test_latencies_are_percentiles_of_calls_not_of_graphs():
    slow = graph(1, 10, name="prefill", device_us=9500.0)
    usage = usage_between(status(0.0), status(1.0, slow, graph(99, 10)))
    total, device = usage.latencies_s(launch=True), usage.latencies_s(launch=False)
    assert list(total) == ["p0", "p1", "p25", "p50", "p75", "p99", "p100"]
    assert (total["p0"], total["p99"], total["p100"]) == (0.002, 0.002, 0.0095)
    assert (device["p50"], device["p100"]) == (0.0015, 0.009)
    assert usage_between(status(0.0, slow), status(1.0, slow)).latencies_s(launch=True) is None


def test_errors_cover_the_period():
    before, after = {"incorrect_input": 2, "completed_with_err": 1}, {"incorrect_input": 5, "completed_with_err": 0}
    assert usage_between(status(0.0, errors=before), status(1.0, errors=after)).errors == {"incorrect_input": 3}


@pytest.mark.parametrize(("percent", "value"), [(0, 1.0), (1, 1.0), (50, 1.0), (51, 2.0), (99, 3.0), (100, 3.0)])
def test_percentiles(percent, value):
    assert percentile([(3.0, 1), (1.0, 2), (2.0, 1)], percent) == value


def test_fast_reader_sees_repeated_rates_and_single_calls():
    tracker = Tracker()
    first, second = status(10.0, graph(0, 0)), status(11.0, graph(100, 500_000))
    assert tracker.update([first], 10.5) == {}
    assert tracker.update([first], 10.7) == {}
    (usage,) = tracker.update([second], 11.2).values()
    assert usage.calls and usage.cores[0].utilization_percent == pytest.approx(28.57, abs=0.01)
    (repeat,) = tracker.update([second], 11.4).values()
    assert repeat.calls == () and repeat.cores == usage.cores and repeat.latencies_s(launch=True) is None


def test_display_sees_calls_repeatedly():
    tracker = Tracker(repeat=True)
    tracker.update([status(10.0)], 10.0)
    busy = status(11.0, graph(100, 500_000))
    (first,) = tracker.update([busy], 11.0).values()
    assert tracker.update([busy], 11.5) == {7: first} and first.elapsed_s == 1.0
    (silent,) = tracker.update([busy], 17.0).values()
    assert silent.calls == () and silent.cores[0].utilization_percent == 0.0


def test_silent_process_is_idle_and_ended_process_is_dropped():
    tracker = Tracker()
    tracker.update([status(10.0)], 10.0)
    busy = status(11.0, graph(100, 500_000))
    tracker.update([busy], 11.0)
    (silent,) = tracker.update([busy], 17.0).values()
    assert silent.cores[0].utilization_percent == 0.0
    assert tracker.update([], 18.0) == {} and tracker.update([busy], 19.0) == {}


def test_processes_are_followed_apart():
    tracker = Tracker()
    tracker.update([status(10.0, pid=1), status(10.0, pid=2)], 10.0)
    usage = tracker.update([status(11.0, graph(1, 1e6), pid=1), status(11.0, pid=2)], 11.0)
    assert {pid: use.cores[0].utilization_percent for pid, use in usage.items()} == {1: 100.0, 2: 0.0}
