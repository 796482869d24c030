"""Activity of cores: calls are counted as they happen, times are computed later, closed programs stay in the totals."""

from __future__ import annotations

import os
import threading

import pytest

from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import Timeline, Track, recording
from optimum_neuron.runtime.timeline import CLOSED
from tests.waiting import in_threads

INSTANCE = INSTANCES["trn1.2xlarge"]


def track(model="bert", cores=(0,)):
    return Track(None, model=model, instance=INSTANCE, core_ids=cores, auto_cast="none")


def call(track, graph="forward", times=1):
    for _ in range(times):
        track.end(graph, track.start())


@pytest.fixture
def prices():
    """Times of graphs, and which were asked for."""
    requests = []

    def device_us(track, graph):
        requests.append((track.model, graph))
        return {"forward": 10.0, "decode": 3.0}[graph]

    device_us.asked = requests
    return device_us


def test_calls_add_up_by_core_and_model(prices):
    timeline = Timeline()
    first, second = timeline.open(track("bert")), timeline.open(track("llama", (0, 1)))
    call(first, times=3)
    call(second, "decode", 2)
    zero, one = timeline.usage(prices)
    assert (zero.instance, zero.core_id, zero.num_calls, zero.busy_us) == (INSTANCE.name, 0, 5, 36.0)
    assert zero.busy_us_by_model == {"bert": 30.0, "llama": 6.0} and zero.num_calls_by_model["bert"] == 3
    assert (one.core_id, one.num_calls, one.busy_us, one.simulated) == (1, 2, 6.0, True)


def test_timing_starts_on_first_request(prices):
    timeline = Timeline()
    one = timeline.open(track())
    (idle,) = timeline.usage(prices)
    call(one, times=2)
    assert (idle.num_calls, idle.busy_us, prices.asked) == (0, 0.0, [])
    timeline.usage(prices)
    call(one)
    assert timeline.usage(prices)[0].busy_us == 30.0
    assert prices.asked == [("bert", "forward")]


def test_closed_programs_stay_in_totals(prices):
    timeline = Timeline()
    one = timeline.open(track())
    call(one, times=2)
    timeline.close(one)
    timeline.close(one)
    for _ in range(2):
        (core,) = timeline.usage(prices)
        assert (core.num_calls, core.busy_us, core.num_untimed_calls) == (2, 20.0, 0)
        assert core.busy_us_by_model == {}


def test_calls_of_unknown_time_are_counted_as_such():
    timeline = Timeline()
    one = timeline.open(track())
    call(one, times=2)
    for is_closed in (False, True):
        (core,) = timeline.usage(lambda *_: None)
        assert (core.num_calls, core.num_untimed_calls, core.busy_us) == (2, 2, 0.0), is_closed
        timeline.close(one)


def test_oldest_closed_programs_keep_totals_only(prices):
    timeline = Timeline()
    for number in range(CLOSED + 2):
        one = timeline.open(track(f"model {number}"))
        call(one)
        timeline.close(one)
    (core,) = timeline.usage(prices)
    assert (core.num_calls, core.num_untimed_calls, core.busy_us) == (CLOSED + 2, 2, 10.0 * CLOSED)


def test_validation_calls_are_not_counted():
    one = track()
    with one.paused():
        call(one)
    assert one.num_calls == {}
    call(one)
    assert one.num_calls == {"forward": 1}


def test_threads_lose_no_call():
    one = track()
    in_threads(*[lambda: call(one, "forward", 2000)] * 8)
    assert one.num_calls == {"forward": 16000}


def test_failing_calls_are_counted_separately():
    timeline, one = Timeline(), track()
    assert timeline.tracks() == []
    timeline.open(one)
    assert timeline.tracks() == [one]
    with recording() as executions:
        call(one, times=2)
        call(one, "other")
    one.fail("incorrect_input")
    with one.paused():
        one.fail("incorrect_input")
    assert one.errors == {"incorrect_input": 1} and one.num_calls == {"forward": 2, "other": 1}
    taken = [(result.graph, (result.ended_ns - result.started_ns) / 1e3) for _, result in executions]
    assert one.host_us["forward"] == pytest.approx(sum(us for graph, us in taken if graph == "forward"))
    assert one.host_us["other"] == pytest.approx(taken[-1][1])
    assert track().number > one.number


def test_running_calls_are_known_until_they_end():
    one = track()
    assert one.running_us == 0
    started_ns = one.start()
    in_threads(one.start)
    both_us = one.running_us
    assert both_us > 0
    one.end("forward", started_ns)
    assert len(one._running) == 1
    with one.paused():
        one.start()
        one.fail("completed_with_err")
    assert len(one._running) == 1 and one.errors == {}


def test_open_recordings_keep_everything():
    first, second = track("a"), track("b")
    call(first)
    with recording() as outer:
        call(first, times=300)
        with recording() as inner:
            call(second, "decode")
    call(first)
    assert len(outer) == 301 and [(kept.model, result.graph) for kept, result in inner] == [("b", "decode")]
    assert all(result.started_ns <= result.ended_ns and result.thread == threading.get_ident() for _, result in outer)


def test_forked_child_starts_empty():
    from optimum_neuron.runtime import TIMELINE

    one = TIMELINE.open(track("parent"))  # not called: others in this process ask for times
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, str(len(TIMELINE.usage(lambda track, graph: 0.0))).encode())
        os._exit(0)
    assert os.read(reading, 9) == b"0"
    os.wait()
    TIMELINE.close(one)
