"""Times and places of one request."""

from __future__ import annotations

import pytest

from optimum_neuron.batching import Request
from optimum_neuron.batching.request import Adapter, SimulatedTimes, Status


def request(num_prompt=3, **options):
    return Request(request_id="a", prompt=list(range(num_prompt)), max_new_tokens=4, **options)


def test_simulated_times_are_differences_of_what_was_noted():
    times = SimulatedTimes()
    assert (times.wait_s, times.ttft_s, times.tpot_s, times.latency_s) == (None,) * 4
    times.start(3.0)
    times.note_answer(5.0, 1)
    assert (times.wait_s, times.ttft_s, times.latency_s) == (None,) * 3, "it has not arrived"
    times.arrival_s = 1.0
    assert (times.wait_s, times.ttft_s, times.tpot_s, times.latency_s) == (2.0, 4.0, None, 4.0)
    times.start(6.0)
    times.note_answer(6.0, 2)
    assert (times.start_s, times.tpot_s) == (3.0, 1.0)
    times.note_answer(8.0, 4)
    assert (times.wait_s, times.ttft_s, times.tpot_s, times.latency_s) == (2.0, 4.0, 1.0, 7.0)
    assert SimulatedTimes(first_token_s=1.0, num_tokens=3).tpot_s is None
    waiting = SimulatedTimes(arrival_s=1.0)
    assert (waiting.wait_s, waiting.ttft_s, waiting.latency_s) == (None,) * 3


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_request_that_ends_has_begun(has_begun):
    released = []
    one = request(adapter=Adapter(release=lambda: released.append(1)), state="state")
    if has_begun:
        one.start()
    begun = one.started_s
    assert begun >= 0 if has_begun else begun < 0
    error = ValueError("wrong")
    one.end(Status.FAILED, error)
    assert 0 <= one.started_s <= one.ended_s and (one.started_s == begun) == has_begun
    assert (one.state, one.error, one.is_over, released) == (None, error, True, [1])
    whole = request()
    whole.end(Status.FINISHED)
    assert whole.is_over and request().started_s == -1
    one.started_s = 0.0
    one.start()
    assert one.started_s == 0.0


def test_tokens_and_their_places():
    one = request(record_timestamps=True)
    assert (one.num_tokens, one.num_next, one.is_prompt_read, one.is_over) == (3, 1, False, False)
    one.add(7, None)
    one.add(8, -0.5)
    one.num_computed, one.candidates = 3, [9, 9]
    assert (one.num_tokens, one.num_next, one.is_prompt_read) == (5, 6, True)
    assert (one.answer, one.logprobs, len(one.timestamps)) == ([7, 8], [-0.5], 2)
    assert request(priority=1).rank > request(order=5).rank > request(order=4).rank
    plain = request()
    plain.add(7, None)
    assert plain.timestamps == []
