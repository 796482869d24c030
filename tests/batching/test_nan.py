"""NaN of one request stays in it: blocks that held it are cleared, and block 0 too, where padding writes."""

from __future__ import annotations

import pytest
from transformers import LogitsProcessorList

from optimum_neuron.engine import SequenceDraft
from tests.batching.stand_in import (
    SPOILT,
    Same,
    answer_of,
    engine_of,
    finish,
    logits_of,
    request,
    serve,
)


@pytest.mark.parametrize("num_read", [0, 4])
@pytest.mark.parametrize("spoilt", [[SPOILT], [5, 6, SPOILT, 7, 8], [SPOILT, *range(2, 9)]], ids=str)
def test_nan_stays_with_its_request(spoilt, num_read):
    """Blocks that held it are cleared for the next one, and block 0, where padding writes, for all."""
    engine = engine_of(num_blocks=6)
    engine.runner._loaded.num_read = num_read
    prompts = {str(number): [5, 6, 7, 8, 9, 10, 11][: 1 + number] for number in range(6)}
    requests = [request(name, prompt, 5) for name, prompt in prompts.items()]
    bad = [request(f"bad {number}", spoilt, 3) for number in range(6)]
    serve(engine, [one for pair in zip(requests, bad, strict=True) for one in pair])
    assert {one.request_id: one.answer for one in requests} == {
        name: answer_of(prompt, 5) for name, prompt in prompts.items()
    }
    assert not any(one.is_finite for one in bad) and all(one.is_finite for one in requests)
    assert not engine.runner._state[0][0].isnan().any()
    state = engine.runner._state
    engine.runner.close()
    assert engine.runner._loaded.given_back == [state] and not any(tensor.any() for tensor in state)


@pytest.mark.parametrize("num_read", [0, 4])
def test_nan_of_an_answer_is_cleared_too(num_read):
    engine = engine_of()
    engine.runner._loaded.num_read = num_read
    forced = LogitsProcessorList([lambda ids, scores: logits_of(SPOILT)[None]])
    bad, good = request("bad", [5, 6], 9, processors=forced), request("good", [5, 6, 7], 6)
    for one in (bad, good):  # the last block of the first one is not given to the second
        serve(engine, [one])
    assert bad.answer == [SPOILT] * 9 and not bad.is_finite
    assert good.answer == answer_of([5, 6, 7], 6)


def test_nan_of_a_prompt_that_is_cancelled_is_cleared():
    engine = engine_of(num_blocks=6)
    engine.add(request("bad", [5, 6, 7, *[SPOILT] * 6], 2))
    engine.step()
    engine.step()
    engine.cancel("bad")
    good = request("good", [8, 9, 10, 11, 12], 6)
    serve(engine, [good])
    assert good.answer == answer_of([8, 9, 10, 11, 12], 6)


def test_a_state_that_held_numbers_is_given_back_as_it_is():
    engine = engine_of()
    serve(engine, [request("a", [5, 6], 2)])
    state = engine.runner._state
    engine.runner.close()
    engine.runner.close()
    assert len(engine.runner._loaded.given_back) == 1 and state[0].any()


def test_nan_of_a_candidate_changes_no_answer(caplog):
    engine = engine_of()
    prompts = {"a": [5, 6, 7, 8], "b": [9, 10]}
    drafts = {"a": Same(SPOILT, 4), "b": Same(3, SPOILT)}
    requests = [request(name, prompt, 8, draft=SequenceDraft(drafts[name])) for name, prompt in prompts.items()]
    serve(engine, requests)
    assert [one.answer for one in requests] == [answer_of(prompt, 8) for prompt in prompts.values()]
    assert all(one.draft is None and one.is_finite for one in requests)
    assert [record.args[0] for record in caplog.records] == ["a", "b"]


def test_nan_of_a_request_that_gave_way_is_cleared_when_it_goes_on():
    engine = engine_of(num_blocks=6)
    requests = [request("first", [5, 6, 7, 8], 8), request("bad", [3, 4, 6, SPOILT], 6)]
    for one in requests:
        engine.add(one)
    finish(engine, lambda: engine.scheduler.preempted)
    (gone,) = engine.scheduler.preempted
    assert gone is requests[1] and gone.saved is not None
    # Its next results have none, as of a window that has left it behind.
    step = engine.runner.step
    engine.runner.step = lambda ones: [{key: one.nan_to_num() for key, one in row.items()} for row in step(ones)]
    finish(engine, lambda: gone in engine.scheduler.running)
    assert gone.saved is None
    finish(engine)
    engine.runner.step = step
    later = request("later", [5] * 3, 6)
    serve(engine, [later])
    assert (requests[0].answer, later.answer) == (answer_of([5, 6, 7, 8], 8), answer_of([5] * 3, 6))
