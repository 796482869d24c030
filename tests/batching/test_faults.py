"""Whatever goes wrong with one request, the others get their tokens, and no block, queue place or handler is lost."""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Iterator

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import ContinuousBatchingConfig

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.batching import BatchingManager
from optimum_neuron.engine import Draft
from optimum_neuron.errors import QueueFullError

GREEDY = {"do_sample": False, "eos_token_id": -1}
PROMPTS = {"short": [3, 4, 5], "long": [6] * 40, "other": [7, 8, 9], "last": [10, 11]}


@pytest.fixture
def manager(model) -> Iterator[BatchingManager]:
    """A manager whose thread was not started; its steps can be taken one by one."""
    manager = model.init_continuous_batching()
    yield manager
    manager.destroy()
    pool = manager.engine.pool
    assert (pool.num_used, pool.num_free, manager.engine.has_work) == (0, pool.num_usable, False)


def tokens(model, prompt: list[int], **settings) -> list[int]:
    return model.generate_batch([prompt], **GREEDY | settings)["req_0"].generated_tokens


def test_a_request_can_be_cancelled_at_any_time(model, manager):
    for name, prompt in PROMPTS.items():
        manager.add_request(prompt, name, max_new_tokens=6, **GREEDY)
    engine = manager.engine
    engine.step()
    engine.step()
    assert (len(engine.scheduler.running), len(engine.scheduler.waiting)) == (2, 2)
    assert not engine.scheduler.running[1].is_prompt_read
    for name in ("short", "long", "other", "short", "unknown"):
        manager.cancel_request(name)
    over = engine.step()[:3]
    assert {request.request_id: len(request.answer) for request in over} == {"short": 2, "long": 0, "other": 0}
    assert all("cancelled" in str(request.error) for request in over)
    manager.start()
    manager.stop()
    assert manager.get_result("last").generated_tokens == tokens(model, PROMPTS["last"], max_new_tokens=6)
    assert engine.counters.requests_cancelled_total == 3


def test_a_preempted_request_can_be_cancelled(manager):
    names = [manager.add_request([index] * 20, max_new_tokens=28, **GREEDY) for index in (3, 4, 5)]
    while not manager.engine.scheduler.preempted:
        manager.engine.step()
    manager.cancel_request(manager.engine.scheduler.preempted[0].request_id)
    manager.start()
    manager.stop()
    statuses = [manager.get_result(name).status.name for name in names[:2]]
    assert statuses == ["FINISHED", "FINISHED"]


@pytest.mark.parametrize("spoilt", [[1], [3] * 20 + [1] + [4] * 3, [3, 1] + [4] * 30], ids=["short", "late", "early"])
def test_nan_stays_with_its_request(model, spoilt_model, spoilt):
    """Padding of a chunk sees NaN too, and is written to the block that all tables list: 0 times NaN is NaN."""
    expected = [tokens(model, prompt, max_new_tokens=8) for prompt in PROMPTS.values()]
    inputs = [prompt for one in PROMPTS.values() for prompt in (one, spoilt)]
    outputs = [*spoilt_model.generate_batch(inputs, max_new_tokens=8, **GREEDY).values()]
    assert [output.generated_tokens for output in outputs[::2]] == expected
    assert tokens(spoilt_model, [*PROMPTS["short"], *PROMPTS["long"]], max_new_tokens=4) == tokens(
        model, [*PROMPTS["short"], *PROMPTS["long"]], max_new_tokens=4
    )


def test_nan_of_a_cancelled_prompt_is_cleared(model, spoilt_model):
    manager = spoilt_model.init_continuous_batching()
    manager.add_request([1] * 30, "spoilt", **GREEDY)
    manager.engine.step()
    manager.cancel_request("spoilt")
    names = [manager.add_request(prompt, max_new_tokens=8, **GREEDY) for prompt in PROMPTS.values()]
    manager.start()
    outputs = [manager.get_result(name).generated_tokens for name in names]
    manager.destroy()
    assert outputs == [tokens(model, prompt, max_new_tokens=8) for prompt in PROMPTS.values()]


def test_nan_of_a_resumed_request_is_cleared(model, spoilt_model, monkeypatch):
    """Its blocks hold NaN, also where its last results have none: a window has left it behind."""
    manager = spoilt_model.init_continuous_batching()
    engine, step = manager.engine, manager.engine.runner.step
    names = [manager.add_request([token] * 20, max_new_tokens=28, **GREEDY) for token in (3, 4, 1)]
    while not engine.scheduler.preempted:
        engine.step()
    (request,) = engine.scheduler.preempted
    assert request.request_id == names[2]
    request.sampler.max_new_tokens = len(request.answer) + 1
    monkeypatch.setattr(
        engine.runner, "step", lambda requests: [{n: r.nan_to_num() for n, r in one.items()} for one in step(requests)]
    )
    while engine.has_work:
        engine.step()
    monkeypatch.undo()
    names = [manager.add_request(prompt, max_new_tokens=8, **GREEDY) for prompt in PROMPTS.values()]
    manager.start()
    outputs = [manager.get_result(name).generated_tokens for name in names]
    manager.destroy()
    assert outputs == [tokens(model, prompt, max_new_tokens=8) for prompt in PROMPTS.values()]


class Same(Draft):
    """Proposes the same tokens always."""

    name, config = "same", None

    def __init__(self, *candidates: int) -> None:
        self.candidates = list(candidates)

    def propose(self, ids_1C, hidden_NF):
        return self.candidates


def test_nan_of_a_rejected_candidate_changes_no_answer(model, spoilt_model):
    """The candidate is checked beside other requests, and padding behind it sees NaN too."""
    prompts = {name: prompt for name, prompt in PROMPTS.items() if name != "long"}
    drafts = {"short": Same(3, 1), "other": Same(4, 5, 6), "last": Same(7)}
    expected = {name: tokens(model, prompt, max_new_tokens=8) for name, prompt in prompts.items()}
    with spoilt_model.continuous_batching_context_manager() as manager:
        for name, prompt in prompts.items():
            manager.add_request(prompt, name, max_new_tokens=8, **GREEDY, assistant_model=drafts[name])
        outputs = [manager.get_result() for _ in prompts]
        assert manager.engine.counters.checks_total > 8, "of several requests in a call"
    assert {output.request_id: output.generated_tokens for output in outputs} == expected


@pytest.fixture(scope="module")
def spoilt_model(model, checkpoint_of_model, tmp_path_factory):
    """The same model, but the embedding of token 1 is NaN."""
    folder = shutil.copytree(checkpoint_of_model, tmp_path_factory.mktemp("spoilt") / "checkpoint")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"][1] = torch.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model.save_pretrained(exported := tmp_path_factory.mktemp("exported"))
    with NeuronModelForCausalLM.from_pretrained(exported) as spoilt:
        spoilt.replace_weights(folder)
        yield spoilt


def test_handlers_that_raise_or_are_gone_stop_nobody(manager, caplog):
    loops = [asyncio.new_event_loop(), asyncio.new_event_loop()]
    raised, received = [], []
    loops[1].set_exception_handler(lambda loop, context: raised.append(context["exception"]))

    async def register(name: str, callback) -> None:
        manager.register_result_handler(name, callback)

    names = [manager.add_request([3, 4], max_new_tokens=4, streaming=True, **GREEDY) for _ in range(3)]
    loops[0].run_until_complete(register(names[0], received.append))
    loops[0].close()
    loops[1].run_until_complete(register(names[1], lambda output: output.no_such_field))
    manager.start()
    manager.stop()
    loops[1].run_until_complete(asyncio.sleep(0))
    loops[1].run_until_complete(register(names[2], received.append))  # outputs that came before are not lost
    loops[1].run_until_complete(asyncio.sleep(0))
    loops[1].close()
    assert manager.fatal_error is None
    assert sum("is lost" in record.message for record in caplog.records) == 4
    assert [type(error) for error in raised] == [AttributeError] * 4
    assert [len(output.generated_tokens) for output in received] == [1, 2, 3, 4]
    assert manager.get_result() is None


def test_an_error_of_the_program_ends_all_requests_and_the_next_session_works(manager, monkeypatch, caplog):
    def broken(requests):
        raise ArithmeticError("broken")

    names = [manager.add_request(prompt, max_new_tokens=4, **GREEDY) for prompt in PROMPTS.values()]
    monkeypatch.setattr(manager.engine.runner, "step", broken)
    with caplog.at_level(logging.CRITICAL):
        manager.start()
        assert [manager.get_result(name).error for name in names] == ["broken"] * 4
    manager.join()
    assert isinstance(manager.background_thread_status.fatal_error, ArithmeticError)
    assert manager.add_request([3]) is None
    monkeypatch.undo()
    manager.start()
    assert manager.get_result(manager.add_request([3], max_new_tokens=2, **GREEDY)).error is None


def test_a_pause_holds_the_steps_and_a_stop_within_it_is_refused(manager):
    manager.start()
    names = [manager.add_request(prompt, max_new_tokens=8, **GREEDY) for prompt in PROMPTS.values()]
    inside, leave = threading.Barrier(2, timeout=10), threading.Event()

    def hold() -> None:
        with manager.pause():
            inside.wait()
            leave.wait(10)

    other = threading.Thread(target=hold)
    other.start()
    inside.wait()
    with manager.pause():
        before = manager.current_batch
        with pytest.raises(RuntimeError, match="within its pause"):
            manager.stop()
    assert not leave.wait(0.05)
    assert manager.current_batch == before
    leave.set()
    other.join()
    assert [manager.get_result(name).status.name for name in names] == ["FINISHED"] * 4
    manager.stop()
    with pytest.raises(RuntimeError):
        manager.pause().__enter__()


def test_a_manager_that_was_destroyed_takes_nothing(model):
    manager = model.init_continuous_batching()
    manager.stop()
    name = manager.add_request([3])
    manager.destroy()
    manager.destroy()
    assert manager.get_result(name).error == "The manager was stopped."
    assert manager.add_request([3]) is None
    with pytest.raises(RuntimeError):
        manager.start()
    charges = [*model.loaded.charges]
    model.init_continuous_batching().destroy()
    assert model.loaded.charges == charges, "the next one takes the same memory"


def test_siblings_have_places_together_or_not_at_all(model):
    manager = model.init_continuous_batching(
        continuous_batching_config=ContinuousBatchingConfig(max_queue_size=3, seed=0)
    )
    manager.add_request([3], num_return_sequences=2, do_sample=True, max_new_tokens=2)
    for number in (2, 4):
        with pytest.raises(QueueFullError):
            manager.add_request([4], num_return_sequences=number, do_sample=True)
    assert len(manager.engine.scheduler.waiting) == 2
    manager.destroy()


def test_a_short_queue_takes_a_long_batch(model):
    config = ContinuousBatchingConfig(max_queue_size=2)
    outputs = model.generate_batch([[3, 4]] * 9, continuous_batching_config=config, max_new_tokens=3, **GREEDY)
    assert len({tuple(output.generated_tokens) for output in outputs.values()}) == 1
    assert len(outputs) == 9


def test_many_threads_offer_more_than_the_queue_holds(model, monkeypatch):
    """A thousand requests at once: some are taken, the others are refused at once, and all that were taken are over."""
    monkeypatch.setattr("optimum_neuron.batching.manager.SECONDS_OF_PATIENCE", 0.0)
    config = ContinuousBatchingConfig(max_queue_size=16)
    taken, refused = [], []

    def offer(manager: BatchingManager) -> None:
        for _ in range(250):
            try:
                taken.append(manager.add_request([3, 4], max_new_tokens=1, **GREEDY))
            except QueueFullError:
                refused.append(True)

    with model.continuous_batching_context_manager(continuous_batching_config=config) as manager:
        threads = [threading.Thread(target=offer, args=(manager,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {manager.get_result().request_id for _ in taken} == set(taken)
    assert len(taken) + len(refused) == 1000
    assert refused and len(taken) >= 16
