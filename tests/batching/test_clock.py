"""Simulated time: a load takes on an engine what its estimate says, because both have one scheduler and one clock."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from optimum_neuron.batching import (
    Engine,
    Request,
    Runner,
    SimulatedTimes,
    clock as batching_clock,
    make_sampler,
    serve_trace,
)
from optimum_neuron.batching.clock import Clock, DeviceTimer
from optimum_neuron.batching.counters import Counters
from optimum_neuron.errors import ModelError
from optimum_neuron.runtime import ServingCost
from optimum_neuron.simulator import SERVED, clock, compiled, estimate, poisson_arrivals, simulate_requests, summarize
from tests.tiny import VOCABULARY

NUM_PROMPT, NUM_ANSWER, REQUESTS_PER_S = 20, 6, 60.0


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("paged")
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def engine(model):
    """An engine that has served requests, twice as many each second as in the estimate: they give way to each other."""
    engine = Engine(Runner(model.loaded, model._signature), enable_prefix_caching=False)
    engine.requests = [request_at(model, time) for time in poisson_arrivals(2 * REQUESTS_PER_S, 60, seed=7)]
    serve_trace(engine, engine.requests)
    yield engine
    engine.runner.close()


def request_at(model, arrival_s: float) -> Request:
    draw = random.Random(arrival_s)
    prompt = [draw.randrange(3, VOCABULARY) for _ in range(NUM_PROMPT)]
    options = {"max_new_tokens": NUM_ANSWER, "do_sample": False, "eos_token_id": -1}
    sampler = make_sampler(model, prompt, None, options, num_slots=48, seed=0, wants_logprobs=False)
    times = SimulatedTimes(arrival_s=arrival_s)
    return Request(
        request_id=str(arrival_s), prompt=prompt, max_new_tokens=NUM_ANSWER, sampler=sampler, simulated=times
    )


@pytest.fixture(scope="module")
def estimated(folder):
    lengths = {"sequence_length": NUM_PROMPT + NUM_ANSWER, "output_length": NUM_ANSWER}
    return estimate(str(folder), data_parallel_size=1, requests_per_s=REQUESTS_PER_S, **lengths)


COST = ServingCost(chunk_s=0.5, step_s=2.0, row_s=0.25, copy_bytes_per_s=8.0, basis="a test")


def plan(preempted=(), resumed=()):
    return SimpleNamespace(
        preempted=[(None, [1] * number, 0) for number in preempted],
        resumed=[(None, [1] * number, 0) for number in resumed],
    )


def test_times_are_added():
    """Three and two blocks of 4 bytes at 8 bytes a second, a chunk, and a step of three requests."""
    clock = Clock(COST, block_bytes=4)
    assert (clock.now_s, clock.busy_s) == (0, 0)
    clock.copy(plan(preempted=(2, 1), resumed=(2,)))
    assert clock.now_s == 2.5
    clock.read(0.25)
    assert clock.now_s == 3.25
    clock.step(1.0, num_rows=3)
    assert clock.now_s == clock.busy_s == 7.0
    clock.wait_until(6.0)
    assert clock.now_s == 7.0
    clock.wait_until(9.0)
    assert (clock.now_s, clock.busy_s) == (9.0, 7.0)


def test_totals_are_sums_of_what_is_known():
    counters, times = Counters(), SimulatedTimes(arrival_s=1.0, first_token_s=3.0, end_s=7.0, num_tokens=3)
    assert set(counters.to_dict().values()) == {0}
    for one in (times, SimulatedTimes(arrival_s=1.0), times):
        counters.add_times(one)
    totals = {name: value for name, value in counters.to_dict().items() if value}
    assert totals == {
        **{"simulated_ttft_seconds_total": 4.0, "simulated_tpot_seconds_total": 4.0},
        "simulated_latency_seconds_total": 12.0,
    }


class Served:
    """A server that takes two seconds for each step, and ends the earliest request with it."""

    def __init__(self):
        self.clock, self.left, self.done = Clock(COST, block_bytes=1), [], []

    @property
    def has_work(self):
        return bool(self.left)

    def add(self, request):
        self.left.append(request)

    def step(self):
        self.done.append((self.clock.now_s, len(self.left), self.left.pop(0).simulated.arrival_s))
        self.clock.step(0.0, num_rows=0)


def test_requests_of_a_trace_arrive_at_their_times():
    server = Served()
    requests = [SimpleNamespace(simulated=SimulatedTimes(arrival_s=time)) for time in (7.0, 0.5, 2.5, 1.0, 7.0)]
    serve_trace(server, requests)
    assert server.done == [(0.5, 1, 0.5), (2.5, 2, 1.0), (4.5, 1, 2.5), (7.0, 2, 7.0), (9.0, 1, 7.0)]


def test_laps_are_the_times_of_calls_since_the_last(monkeypatch):
    """10 us for each step of a program; nothing is known of the other one, and calls of a closed one are gone."""
    first, second = (SimpleTrack(steps=0, other=0) for _ in range(2))
    tracks, costs = [first, second], {"steps": SimpleNamespace(device_us=8.0, copy_us=2.0), "other": None}
    monkeypatch.setattr(batching_clock, "TIMELINE", SimpleNamespace(tracks=lambda: tracks))
    monkeypatch.setattr(batching_clock, "HOOKS", SimpleNamespace(call_cost=lambda track, graph: costs[graph]))
    timer = DeviceTimer()
    assert (timer.num_untimed, timer.lap_s(), timer.num_untimed) == (0, 0, 0)
    first.calls.update(steps=3, other=2)
    second.calls.update(steps=1)
    assert timer.lap_s() == pytest.approx(40e-6) and timer.num_untimed == 2
    later = DeviceTimer()
    assert later.lap_s() == pytest.approx(40e-6) and later.num_untimed == 2
    first.calls["steps"] = 4
    assert timer.lap_s() == pytest.approx(10e-6) and timer.num_untimed == 0
    tracks.pop(0)
    timer.lap_s()
    assert timer.num_untimed == 0


class SimpleTrack:
    """Numbers of calls."""

    def __init__(self, **calls):
        self.calls = calls

    def num_calls_here(self):
        return self.calls


def test_engine_and_estimate_have_one_clock(engine, estimated):
    served = [request.simulated for request in engine.requests]
    simulated = simulate_requests(estimated.served_pool, [times.arrival_s for times in served])
    assert engine.counters.preemptions_total > 0
    for name in ("wait_s", "ttft_s", "tpot_s", "latency_s"):
        values = [getattr(times, name) for times in served]
        assert values == pytest.approx([getattr(times, name) for times in simulated], rel=1e-6, abs=1e-12), name


def test_load_is_that_of_other_arrivals_at_the_same_rate(estimated):
    arrivals = poisson_arrivals(REQUESTS_PER_S, 2000, seed=7)
    served = summarize(simulate_requests(estimated.served_pool, arrivals))
    assert 0.2 < estimated.load.utilization.value < 0.5
    assert set(estimated.load.served) == set(SERVED)
    for name, quantity in estimated.load.served.items():
        assert served[name] == pytest.approx(quantity.value, rel=0.1), name
        assert quantity.low < quantity.value < quantity.high
    report = estimated.to_dict()["load"]
    assert report["ttft_p90_ms"]["value"] == estimated.load.served["ttft_p90_ms"].value


def test_overload_has_no_end(folder):
    result = estimate(str(folder), data_parallel_size=1, output_length=40, requests_per_s=1e3)
    load = result.to_dict()["load"]
    assert load["utilization"]["value"] > 1 and load["latency_p90_ms"]["value"] is None


def test_counters_have_simulated_times(engine):
    counters, times = engine.counters, [request.simulated for request in engine.requests]
    assert counters.simulated_seconds_total == pytest.approx(engine.clock.busy_s)
    assert engine.clock.busy_s < engine.clock.now_s
    for name in ("ttft", "tpot", "latency"):
        total = getattr(counters, f"simulated_{name}_seconds_total")
        assert total == pytest.approx(sum(getattr(one, f"{name}_s") for one in times)), name
    assert "simulated on inf2" in engine.clock.cost.basis


def test_outputs_have_simulated_times(model):
    with model.continuous_batching_context_manager() as manager:
        manager.add_request([5, 6, 7], max_new_tokens=4, do_sample=False, eos_token_id=-1)
        output = manager.get_result()
    assert 0 < output.simulated.ttft_s < output.simulated.latency_s and output.simulated.num_tokens == 4


def test_a_time_that_cannot_be_computed_stops_no_request(model, monkeypatch, caplog):
    def work_of_entry(program, graph, *, auto_cast):
        raise ModelError("The work of model.layers.0.mixer is unknown.")

    prompt, settings = [5, 6, 7], {"max_new_tokens": 4, "do_sample": False, "eos_token_id": -1}
    answers = []
    for _ in range(2):
        with model.continuous_batching_context_manager() as manager:
            manager.add_request(prompt, **settings)
            output = manager.get_result()
        assert output.error is None
        answers.append(output.generated_tokens)
        monkeypatch.setattr(compiled, "work_of_entry", work_of_entry)
        monkeypatch.setattr(compiled, "_works", {})
    assert answers[0] == answers[1]
    counters = manager.engine.counters
    assert counters.untimed_calls_total == counters.chunks_total + counters.steps_total == 4
    assert clock.known_cost(model.loaded.tracks[0], "decode_20") is None
    (message,) = [record.getMessage() for record in caplog.records if record.name == clock.__name__]
    assert model.loaded.tracks[0].model in message and "model.layers.0.mixer" in message


@pytest.mark.full(days=2)
def test_configuration_is_estimated_as_its_export(model, folder):
    options = {name: getattr(model.neuron_config, name) for name in ("block_size", "num_blocks", "prefill_buckets")}
    options |= {"decode_buckets": (20, 48), "extend_length": 4, "batch_size": 3, "sequence_length": 48}
    options |= {"speculation": True, "hidden_state_layers": (1, 2, 3)}
    source = str(model.prepared.source.folder)
    result = estimate(source, continuous_batching=True, dtype="fp32", output_length=8, **options)
    exported = estimate(str(folder), output_length=8)
    assert result.quantities == exported.quantities and result.memory == exported.memory
    assert result.served_pool == exported.served_pool
