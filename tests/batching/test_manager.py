"""The manager and its thread on a program that counts: names, seeds, places in the queue, outputs, pauses, and ends."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from optimum_neuron.batching import BatchingManager, manager as manager_module, session as session_module
from optimum_neuron.batching.request import Adapter
from optimum_neuron.batching.settings import ManagerSettings
from optimum_neuron.errors import ConfigError, QueueFullError
from tests.batching.stand_in import VOCABULARY, answer_of, engine_of, logits_of, next_token
from tests.raising import raises

PROMPT = [5, 6, 7]
SECONDS = 10
"""Most that a test waits; everything comes within milliseconds."""


class Model(LlamaForCausalLM):
    """What a manager asks of a model."""

    _cached_continuous_batching_manager = None

    def __init__(self):
        sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
        super().__init__(LlamaConfig(vocab_size=VOCABULARY, **sizes))
        self.held, self.released = [], []

    def request_draft(self, prompt, config, assistant):
        return None

    def hold_adapter(self, name):
        self.held.append(name)
        return Adapter(release=lambda: self.released.append(name))


@pytest.fixture(scope="module")
def model():
    return Model()


@pytest.fixture
def make(model):
    """Makes managers, which end with the test."""
    made = []

    def manager_of(*, settings=None, **config) -> BatchingManager:
        config = GenerationConfig(**{"do_sample": False, "eos_token_id": None, "max_new_tokens": 4} | config)
        made.append(BatchingManager(model, engine_of(), config, ManagerSettings(**settings or {})))
        return made[-1]

    yield manager_of
    for one in made:
        one.destroy()
    model.held.clear()
    model.released.clear()


def held(manager) -> tuple[threading.Event, threading.Event]:
    """Let steps wait for an event; return it, and the one that a step sets which waits."""
    gate, waits, step = threading.Event(), threading.Event(), manager.engine.step

    def late():
        waits.set()
        assert gate.wait(SECONDS)
        return step()

    manager.engine.step = late
    return gate, waits


def in_a_step(manager) -> tuple[threading.Event, list[str]]:
    """Start a manager with three requests; return the event that its first step waits for, and their names."""
    gate, waits = held(manager)
    manager.start()
    names = [manager.add_request(PROMPT) for _ in range(3)]
    assert waits.wait(SECONDS)
    return gate, names


def test_names_are_counted_and_siblings_are_children_of_the_first(make, model):
    manager = make()
    assert [manager.add_request(PROMPT) for _ in range(2)] == ["req_0", "req_1"]
    assert manager.add_request(PROMPT, "own", adapter_name="a", num_return_sequences=3, do_sample=True) == "own"
    assert manager.add_requests([PROMPT, [8]], max_new_tokens=2) == ["req_3", "req_4"]
    names = ["req_0", "req_1", "own", "own__child#0", "own__child#1", "req_3", "req_4"]
    assert [one.request_id for one in manager.engine.scheduler.waiting] == names
    assert model.held == [None, None, "a", "a", "a", None, None] and model.released == []
    manager.start()
    manager.stop()
    assert [manager.get_result(name).generated_tokens for name in ("req_1", "req_3", "req_4")] == [
        *(answer_of(PROMPT, 4), answer_of(PROMPT, 2)),
        answer_of([8], 2),
    ]
    assert sorted(map(str, model.released)) == sorted(map(str, model.held))
    assert model._cached_continuous_batching_manager is None, "it is not asked for"
    assert manager.num_return_sequences == 1
    manager = make(num_return_sequences=2, do_sample=True)
    manager.add_request(PROMPT)
    assert [one.request_id for one in manager.engine.scheduler.waiting] == ["req_0", "req_0__child#0"]


def seeds(requests) -> list[int]:
    return [one.sampler.generator.initial_seed() for one in requests]


def test_seeds_are_numbers_of_requests_or_random(make):
    sampled = {"do_sample": True, "num_return_sequences": 2}
    manager = make(settings={"seed": 7})
    assert seeds(manager.make_siblings(PROMPT, sampled)) == [7, 8]
    assert seeds(manager.make_siblings(PROMPT, sampled)) == [8, 9]
    assert seeds(manager.make_siblings(PROMPT, sampled, seed=30)) == [30, 31]
    assert seeds(make(settings={"seed": 0}).make_siblings(PROMPT, {"do_sample": True})) == [0]
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        drawn.append(seeds(make().make_siblings(PROMPT, sampled)))
    torch.manual_seed(5)
    first = int(torch.empty((), dtype=torch.int64).random_())
    assert drawn == [[first, first + 1]] * 2


def test_what_is_asked_of_a_request_is_kept(make):
    manager = make(settings={"return_logprobs": True})
    assert manager.continuous_batching_config.return_logprobs and manager.continuous_batching_config.page_size == 3
    plain, own = (
        manager.make_siblings(PROMPT, {"max_new_tokens": 3}, **options)[0]
        for options in ({}, {"streaming": True, "record_timestamps": True, "priority": 2, "request_id": "own"})
    )
    assert (plain.streaming, plain.record_timestamps, plain.priority, plain.prompt) == (False, False, 0, PROMPT)
    assert (own.streaming, own.record_timestamps, own.priority, own.request_id) == (True, True, 2, "own")
    assert own.max_new_tokens == own.sampler.max_new_tokens == 3 and own.sampler.wants_logprobs
    manager.add_request(PROMPT, "b", 3, True, True, eos_token_id=next_token(PROMPT), priority=1)
    (added,) = manager.engine.scheduler.waiting
    assert (added.streaming, added.record_timestamps, added.priority) == (True, True, 1)
    assert added.sampler.end_ids == {next_token(PROMPT)} and added.max_new_tokens == 3
    manager.add_requests([PROMPT], 2, True, True)
    added = manager.engine.scheduler.waiting[0]
    assert (added.streaming, added.record_timestamps, added.max_new_tokens) == (True, True, 2)
    manager.start()
    started = time.perf_counter()
    output = manager.get_result("b", SECONDS)
    assert time.perf_counter() - started < SECONDS / 2
    assert output.generated_tokens == answer_of(PROMPT, 1) and len(output.timestamps) == 1
    expected = logits_of(next_token(PROMPT)).log_softmax(-1).max().item()
    assert output.logprobs == pytest.approx([expected])


def test_two_requests_of_a_name_are_refused_until_the_first_is_over(make, model):
    manager = make()
    manager.add_request(PROMPT, "a__child#0")
    with raises(ConfigError, request_id="a__child#0"):
        manager.add_request(PROMPT, "a", adapter_name="x", num_return_sequences=2, do_sample=True)
    assert model.released == ["x", "x"] and len(manager.engine.scheduler.waiting) == 1
    manager.add_request(PROMPT, "a")
    with raises(ConfigError, request_id="a"):
        manager.add_request(PROMPT, "a")
    manager.start()
    assert manager.get_result("a", SECONDS).error is None
    assert manager.add_request(PROMPT, "a") == "a"
    assert manager.get_result("a", SECONDS).generated_tokens == answer_of(PROMPT, 4)


def test_places_of_a_queue(make, model, monkeypatch):
    monkeypatch.setattr(manager_module, "SECONDS_OF_PATIENCE", 0.0)
    manager = make(settings={"max_queue_size": 2})
    manager.add_requests([PROMPT, PROMPT])
    with raises(QueueFullError, limit=2):
        manager.add_request(PROMPT, temprature=1)  # settings are not read without a place
    gate, _ = held(manager)
    manager.start()
    with raises(QueueFullError, limit=2):
        manager.add_request(PROMPT)
    siblings = manager.make_siblings(PROMPT, {"num_return_sequences": 3, "do_sample": True}, adapter_name="s")
    started = time.perf_counter()
    with raises(QueueFullError, limit=2):  # more than there can ever be: nobody waits for them
        manager.submit(siblings, patience_s=SECONDS)
    assert time.perf_counter() - started < SECONDS / 2 and model.released == ["s"] * 3
    monkeypatch.setattr(manager_module, "SECONDS_OF_PATIENCE", float(SECONDS))
    timer = threading.Timer(0.05, gate.set)
    timer.start()
    assert manager.add_request(PROMPT) == "req_3"
    manager.stop()
    assert manager.add_request(PROMPT) is None
    assert manager.submit(manager.make_siblings(PROMPT, {}, adapter_name="late"), patience_s=None) is False
    assert model.released[-1] == "late" and {output.request_id for output in manager} == {"req_0", "req_1", "req_3"}


def test_who_waits_for_a_place_hears_of_the_end(make):
    manager, results = make(settings={"max_queue_size": 1}), []
    gate, waits = held(manager)
    manager.start()
    manager.add_request(PROMPT)
    assert waits.wait(SECONDS)
    thread = threading.Thread(target=lambda: results.append(manager.add_request(PROMPT)))
    thread.start()
    manager.stop(block=False, hard_stop=True)
    assert manager.is_running() and not results
    gate.set()
    thread.join(SECONDS)
    assert results == [None]


def test_outputs_of_every_token_and_of_the_whole(make):
    manager = make()
    manager.start()
    assert manager.get_result(timeout=0.0) is None
    streamed = manager.add_request(PROMPT, "streamed", streaming=True)
    outputs = [*manager.request_id_iter(streamed)]
    assert [output.generated_tokens for output in outputs] == [answer_of(PROMPT, 4)[:end] for end in (1, 2, 3, 4)]
    whole = manager.add_request([9], "whole")
    assert [output.generated_tokens for output in manager.request_id_iter(whole)] == [answer_of([9], 4)]
    manager.add_request([8], "late")
    assert manager.get_result("none", 0.01) is None
    manager.stop()
    assert [output.request_id for output in manager] == ["late"] and manager.get_result("late") is None
    assert manager.current_batch == manager.engine.counters.chunks_total + manager.engine.counters.steps_total > 0
    assert manager.engine.counters.chunks_total == 3


def test_a_request_that_is_cancelled_wakes_the_thread_and_who_waits(make):
    manager = make()
    manager.add_request(PROMPT, "a")
    manager.cancel_request("a")
    manager.start()
    assert "cancelled" in manager.get_result("a", SECONDS).error
    assert manager.engine.counters.chunks_total == 0


def test_handlers_get_outputs_in_their_loop(make):
    manager, received = make(), []

    async def listen():
        done = asyncio.Event()

        def take(output):
            received.append((output.generated_tokens, threading.get_ident()))
            if output.is_finished():
                done.set()

        manager.register_result_handler("a", take)
        manager.add_request(PROMPT, "a", streaming=True)
        await asyncio.wait_for(done.wait(), SECONDS)

    manager.start()
    asyncio.run(listen())
    assert received == [(answer_of(PROMPT, 4)[:end], threading.get_ident()) for end in (1, 2, 3, 4)]


def test_a_session_starts_and_ends_and_starts_again(make, model, caplog):
    manager, steps = make(), []
    step = manager.engine.step
    manager.engine.step = lambda: steps.append(True) or step()
    assert not manager.is_running()
    manager.stop()
    manager.join()
    assert len(caplog.records) == 1
    manager.start()
    manager.start()
    assert manager._thread.daemon, "it does not keep a process"
    assert manager.is_running() and len(caplog.records) == 2
    time.sleep(0.01)
    manager.stop(keep_for_next_session=True)
    assert not steps, "without work there are none"
    assert not manager.is_running() and model._cached_continuous_batching_manager is manager
    assert manager.add_request(PROMPT) is None and manager.get_result() is None
    caplog.clear()
    manager.start()
    assert manager.add_request(PROMPT) == "req_0" and manager.get_result(timeout=SECONDS) is not None
    other = make()
    other.destroy()
    assert model._cached_continuous_batching_manager is manager
    manager.destroy()
    assert model._cached_continuous_batching_manager is None and manager.fatal_error is None
    assert manager.engine.runner._loaded.given_back == [manager.engine.runner._state]
    with pytest.raises(RuntimeError):
        manager.start()
    assert manager.add_request(PROMPT) is None and len(caplog.records) == 1
    caplog.clear()
    unused = make()
    unused.add_request(PROMPT, "a")
    unused.destroy()
    assert "stopped" in unused.get_result("a").error and not caplog.records


def test_a_stop_answers_what_waits_or_nothing(make, caplog):
    for hard_stop in (False, True):
        manager = make()
        gate, names = in_a_step(manager)
        caplog.clear()
        manager.stop(timeout=0.01, hard_stop=hard_stop)
        assert manager.is_running() and len(caplog.records) == 1 and manager.add_request(PROMPT) is None
        caplog.clear()
        gate.set()
        manager.join()
        outputs = [manager.get_result(name) for name in names]
        assert [output.error is None for output in outputs] == [not hard_stop] * 3 and not caplog.records
        assert not manager.engine.has_work


def test_who_destroys_a_manager_waits_for_no_answer(make):
    manager = make()
    gate, names = in_a_step(manager)
    threading.Timer(0.02, gate.set).start()
    manager.destroy()
    assert all("stopped" in manager.get_result(name).error for name in names)


def test_an_error_ends_all_requests_and_is_kept(make, monkeypatch, caplog):
    manager = make()
    monkeypatch.setattr(manager.engine, "step", lambda: 1 / 0)
    name = manager.add_request(PROMPT)
    assert manager.fatal_error is None
    manager.start()
    assert "division" in manager.get_result(name, SECONDS).error
    manager.join()
    assert isinstance(manager.fatal_error, ZeroDivisionError) and not manager.is_running()
    assert [record.exc_info[1] for record in caplog.records] == [manager.fatal_error]
    assert manager.add_request(PROMPT) is None
    monkeypatch.undo()
    manager.start()
    assert manager.fatal_error is None
    assert manager.get_result(manager.add_request(PROMPT), SECONDS).error is None


def test_a_pause_waits_for_the_step_and_holds_the_next(make):
    manager = make()
    gate, names = in_a_step(manager)
    threading.Timer(0.02, gate.set).start()
    with manager.pause():
        before = manager.current_batch
        assert before > 0
        with manager.pause(), pytest.raises(RuntimeError):
            manager.stop()
        time.sleep(0.02)
        assert manager.current_batch == before
    assert [manager.get_result(name, SECONDS).error for name in names] == [None] * 3
    time.sleep(0.01)
    with manager.pause():  # the thread sleeps
        pass
    manager.stop()
    with pytest.raises(RuntimeError), manager.pause():
        pass
    assert manager._pausers == []
    with pytest.raises(RuntimeError), make().pause():
        pass


def test_threads_of_others_rest_before_the_own_one_computes(make, monkeypatch):
    rested = []
    for module in (manager_module, session_module):
        monkeypatch.setattr(module, "rest_threads", lambda name=module.__name__: rested.append(name))
    manager = make()
    manager.start()
    manager.add_request(PROMPT)
    assert rested == [session_module.__name__, manager_module.__name__]
