"""Outputs of requests wait in the order of their arrival, or go to the handler of their request."""

from __future__ import annotations

from types import SimpleNamespace

from optimum_neuron.batching import Request
from optimum_neuron.batching.outbox import Outbox, output_of
from optimum_neuron.batching.request import Status


def request(name, *answer, **options):
    one = Request(request_id=name, prompt=[1, 2], max_new_tokens=9, **options)
    for token in answer:
        one.add(token, -0.5)
    return one


def filled():
    outbox = Outbox()
    for name, token in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        outbox.put(output_of(request(name, token)))
    return outbox


def tokens(outbox, name=None):
    """Tokens of the outputs that are left, in their order."""
    taken = []
    while (output := outbox.take(name)) is not None:
        taken += output.generated_tokens
    return taken


def test_outputs_are_taken_in_order_of_all_or_of_one_request():
    assert tokens(filled()) == [1, 2, 3, 4]
    outbox = filled()
    assert (tokens(outbox, "a"), outbox.has("a"), outbox.has("b"), outbox.has()) == ([1, 3], False, True, True)
    assert (tokens(outbox), outbox.has(), outbox.has("b"), outbox.take("none")) == ([2, 4], False, False, None)
    outbox.put(output_of(request("a", 5)))
    assert (outbox.has("a"), tokens(outbox, "a")) == (True, [5])


def test_a_handler_gets_what_was_kept_and_what_comes_until_its_request_is_over():
    outbox, calls = filled(), []
    loop = SimpleNamespace(call_soon_threadsafe=lambda handler, output: handler(output))
    outbox.register("a", lambda output: calls.append(output.generated_tokens), loop)
    assert calls == [[1], [3]] and tokens(outbox, "a") == []
    over = request("a", 6)
    over.end(Status.FINISHED)
    for one in (request("a", 5), over, request("a", 7)):
        outbox.put(output_of(one))
    assert calls == [[1], [3], [5], [6]] and tokens(outbox, "a") == [7], "it was let go with the last one"


def test_outputs_of_the_next_request_of_that_name_are_kept():
    outbox, calls = Outbox(), []
    over = request("a", 1)
    over.end(Status.FINISHED)
    for one in (over, request("a", 2)):
        outbox.put(output_of(one))
    loop = SimpleNamespace(call_soon_threadsafe=lambda handler, output: handler(output))
    outbox.register("a", lambda output: calls.append(output.generated_tokens), loop)
    assert calls == [[1]] and tokens(outbox, "a") == [2]


def test_what_an_output_says():
    one = request("a", 5, 6, record_timestamps=True)
    one.num_shared, one.reading = 1, "one token is read"
    output = output_of(one)
    one.add(7, None)
    assert (output.request_id, output.prompt_ids, output.generated_tokens, output.logprobs) == (
        *("a", [1, 2], [5, 6]),
        [-0.5, -0.5],
    )
    assert (len(output.timestamps), output.num_shared, output.reading, output.error) == (
        2,
        1,
        "one token is read",
        None,
    )
    assert output.created_time == one.created_s and output.lifespan == (-1, -1) and not output.is_finished()
    one.end(Status.FAILED, ValueError("wrong"))
    output = output_of(one)
    assert output.error == "wrong" and output.lifespan == (one.started_s, one.ended_s) and output.is_finished()
    assert output_of(request("b")).timestamps is None


def test_outputs_for_a_loop_that_is_closed_are_lost(caplog):
    def closed(handler, output):
        raise RuntimeError("closed")

    outbox = filled()
    outbox.register("a", print, SimpleNamespace(call_soon_threadsafe=closed))
    assert [record.args[0] for record in caplog.records] == ["a", "a"] and tokens(outbox) == [2, 4]
