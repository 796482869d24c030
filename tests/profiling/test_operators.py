"""The time of a graph is divided among its operators without a rest."""

from __future__ import annotations

import pytest

from optimum_neuron.profiling.operators import operators_of, overlap_of
from optimum_neuron.simulator import call_time, choose_machine, work_of_call
from optimum_neuron.simulator.work import GraphWork, Step, Work

MACHINE = choose_machine("inf2.xlarge")


@pytest.fixture(scope="module", params=["prefill_48", "decode_20"])
def operator_times(request, model):
    program = model.loaded.program

    def time_of(step):
        return call_time(GraphWork(name="one", steps=(step,)), MACHINE, program)

    work = work_of_call(program, request.param, "none")
    return operators_of(work, time_of), call_time(work, MACHINE, program), time_of


def test_parts_add_up_to_total(operator_times):
    operators, whole, _ = operator_times
    launch_us = 1e6 * whole.parts_s["launch"]
    assert sum(one.time_us for one in operators) + launch_us == pytest.approx(1e6 * whole.total_s, rel=1e-12)
    for engine in ("tensor", "vector", "dma", "link"):
        parts = sum(getattr(one, f"{engine}_us") for one in operators)
        assert parts == pytest.approx(1e6 * whole.parts_s[engine], rel=1e-12)


def test_every_operator_has_engine_location_and_bound(operator_times):
    operators, _, _ = operator_times
    linear = [one for one in operators if one.operator == "aten.linear"]
    assert {one.engine for one in linear} == {"tensor"} and "link" not in {one.bound for one in linear}
    assert all(one.source_line and one.module_path for one in linear)
    assert {one.engine for one in operators if one.operator == "aten.embedding"} == {"dma"}
    assert {(one.engine, one.bound) for one in operators if one.operator == "aten.silu"} == {("vector", "vector")}
    assert all(0 <= one.time_us <= one.alone_us for one in operators)
    assert all(one.time_us > 0 for one in operators if one.engine != "vector"), "only fused arithmetic takes no time"


def test_transfers_overlap_with_other_matmuls(operator_times):
    _, _, time_of = operator_times
    computes = time_of(Step(name="a", work=Work(tensor_cycles=28000)))
    moves = time_of(Step(name="b", work=Work(weight_bytes=2_000_000)))
    longest = max(computes.parts_s["tensor"], moves.parts_s["dma"])
    both = computes.parts_s["tensor"] + moves.parts_s["dma"]
    assert overlap_of([computes, moves]) == pytest.approx(longest / both)
    assert overlap_of([computes]) == overlap_of([moves]) == overlap_of([]) == 1.0


def test_unknown_operators_are_kept_without_time(operator_times):
    _, _, time_of = operator_times
    work = GraphWork(name="g", steps=(Step(name="aten.nonzero", work=Work(num_unknown=1), count=2),))
    operators = operators_of(work, time_of)
    assert [(one.is_unknown, one.bound, one.time_us) for one in operators] == [(True, "unknown", 0.0)] * 2


def test_host_is_not_an_operator(operator_times):
    operators, _, _ = operator_times
    assert "host" not in {one.operator for one in operators}
