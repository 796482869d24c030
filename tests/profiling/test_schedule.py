"""One clock for host and cores; engines that do one thing at a time, in order."""

from __future__ import annotations

import itertools
import random

import pytest

from optimum_neuron.profiling.operators import ENGINES, OperatorTime
from optimum_neuron.profiling.schedule import RecordedCall, engine_lanes, on_one_clock, windows


def call(begin, end, device, core=0):
    return RecordedCall(core_ids=(("inf2", core),), device_us=device, started_us=begin, ended_us=end)


def spans(*calls):
    return [(span.started_us, span.ended_us) for span in on_one_clock(calls)]


def test_clock_follows_host_between_calls_and_core_during_calls():
    assert spans(call(100, 150, 7), call(160, 400, 3)) == [(0, 7), (17, 20)]


def test_concurrent_calls_on_several_cores_are_one_segment():
    assert spans(call(0, 50, 7, core=0), call(1, 60, 9, core=1), call(70, 80, 1)) == [(0, 7), (0, 9), (19, 20)]


def test_calls_of_one_core_are_sequential():
    assert spans(call(0, 50, 7), call(1, 60, 9), call(2, 61, 1, core=1)) == [(0, 7), (7, 16), (0, 1)]


def test_call_order_is_kept():
    assert spans(call(70, 80, 1), call(0, 50, 7)) == [(27, 28), (0, 7)]
    assert spans() == []


def operator(tensor, dma, vector, *, overlap, reads=0.0, link=0.0):
    return OperatorTime(
        operator="aten.x",
        module_path="",
        source_line="",
        engine="tensor",
        bound="compute",
        time_us=overlap * max(tensor, dma) + reads + vector + link,
        alone_us=max(tensor, dma) + reads + vector + link,
        tensor_us=tensor,
        vector_us=vector,
        dma_us=dma + reads,
        link_us=link,
        reads_us=reads,
        flops=0,
        hbm_bytes=0,
        is_unknown=False,
    )


@pytest.mark.parametrize("seed", range(20))
def test_engines_are_busy_for_their_full_time_in_order_and_within_call(seed):
    draw = random.Random(seed)
    parts = [(draw.choice((0, 5)) * draw.random(), draw.choice((0, 5)) * draw.random()) for _ in range(30)]
    alone = sum(max(pair) for pair in parts)
    overlap = max(sum(tensor for tensor, _ in parts), sum(dma for _, dma in parts)) / alone
    operators = [
        operator(tensor, dma, draw.random(), overlap=overlap, reads=draw.choice((0, 1)), link=draw.choice((0, 1)))
        for tensor, dma in parts
    ]
    end = 3.0 + sum(one.time_us for one in operators)
    lanes = engine_lanes(operators, begin_us=3.0)
    for engine in ENGINES:
        own = [lane for lane in lanes if lane.engine == engine]
        assert sum(lane.time_us for lane in own) == pytest.approx(sum(getattr(o, f"{engine}_us") for o in operators))
        assert [lane.index for lane in own] == sorted(lane.index for lane in own)
        for one, after in itertools.pairwise(own):
            assert one.started_us + one.time_us <= after.started_us + 1e-9
        assert all(lane.started_us >= 3.0 and lane.started_us + lane.time_us <= end + 1e-9 for lane in own)


def test_vector_passes_end_their_operator():
    operators = [operator(4, 2, 1, overlap=1.0), operator(1, 6, 1, overlap=1.0)]
    first, second = windows(operators, begin_us=10.0)
    assert (first.started_us, first.ended_us, second.ended_us) == (10, 15, 22)
    vector = [lane for lane in engine_lanes(operators, begin_us=10.0) if lane.engine == "vector"]
    assert [(lane.started_us, lane.time_us) for lane in vector] == [(14, 1), (21, 1)]
