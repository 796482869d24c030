"""Requests of any kind on a program that counts: every answer is the one that its own tokens give."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace

import pytest
import torch
from transformers import LogitsProcessorList, RepetitionPenaltyLogitsProcessor, StoppingCriteriaList, TopKLogitsWarper

from optimum_neuron.batching import Engine, Request, Runner
from optimum_neuron.batching.clock import DeviceTimer
from optimum_neuron.batching.request import Status
from optimum_neuron.engine import Draft, SequenceDraft
from tests.batching.stand_in import (
    VOCABULARY,
    Same,
    answer_of,
    engine_of,
    finish,
    logits_of,
    next_token,
    request,
    serve,
)
from tests.engine.counting import EXTEND, SLOTS


class Oracle(Draft):
    """Knows the answer, and is wrong in some of its tokens; checks what it reads of the tokens before the newest."""

    name, reads = "oracle", ("hidden_states.1",)

    def __init__(self, sequence: list[int], wrong: int = 0) -> None:
        self.sequence, self.wrong, self.num_read, self.num_proposed = sequence, wrong, 0, 0

    def propose(self, ids_1C, hidden_NF):
        (ids,) = ids_1C.tolist()
        assert ids == self.sequence[: len(ids)]
        assert hidden_NF[:, 0].tolist() == [*range(self.num_read, len(ids) - 1)]
        self.num_read = len(ids) - 1
        return [
            0 if self.wrong and (len(ids) + place) % self.wrong == 0 else token
            for place, token in enumerate(self.sequence[len(ids) :])
        ]


def drafted(name: str, prompt: list[int], number: int, wrong: int = 0, **options) -> Request:
    oracle = Oracle(prompt + answer_of(prompt, number), wrong)
    return request(name, prompt, number, draft=SequenceDraft(oracle), **options)


KINDS = {
    "rows": {},
    "few blocks": {"num_blocks": 6},
    "adapters": {"num_blocks": 6, "extras": ("adapter_index",)},
    "a state of each row": {"num_blocks": 6, "extras": ("num_new_tokens",)},
    "candidates of the device": {"num_blocks": 6},
    "long checks": {"extend": (5,)},
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_answers_do_not_depend_on_what_runs_beside_them(kind, seed):
    draw, engine = random.Random(seed), engine_of(**KINDS[kind])
    engine.runner._loaded.num_read = 4 if kind == "candidates of the device" else 0
    shared, requests, expected = [draw.randrange(2, VOCABULARY) for _ in range(8)], [], {}
    for number in range(40):
        length = draw.randint(1, 9)
        begin = draw.choice((0, min(8, length - 1)))
        prompt = shared[:begin] + [draw.randrange(2, VOCABULARY) for _ in range(length - begin)]
        most, adapter = draw.randint(1, SLOTS - length), draw.randrange(3) if kind == "adapters" else 0
        name, options = f"{number:02}", {"adapter": adapter, "priority": draw.choice((0, 0, 1))}
        expected[name] = answer_of(prompt, most, 8 * adapter)
        if kind != "a state of each row" and not adapter and number % 3 == 0:
            requests.append(drafted(name, prompt, most, draw.randrange(4), **options))
        else:
            requests.append(request(name, prompt, most, **options))
    plans, copy, started = [], engine.clock.copy, time.perf_counter()
    engine.clock.copy = lambda plan: plans.append(plan) or copy(plan)
    step = engine.runner.step

    def checked(requests):
        results = step(requests)
        assert [len(one["logits"]) for one in results] == [1 + len(one.candidates) for one in requests]
        return results

    engine.runner.step = checked
    engine.runner.clear = engine.runner.clear_slots = None  # nothing is to be cleared
    left = [*requests]
    while left:
        for _ in range(min(draw.randrange(3), len(left))):
            engine.add(left.pop())
        changed = engine.step()
        assert len({*changed}) == len(changed)
    finish(engine)
    seconds = time.perf_counter() - started
    assert {one.request_id: one.answer for one in requests} == expected
    assert {one.status for one in requests} == {Status.FINISHED} and not any(one.error for one in requests)
    pool, counters = engine.pool, engine.counters
    assert (pool.num_used, pool.num_free) == (0, pool.num_usable)
    assert counters.requests_finished_total == 40 and counters.answer_tokens_total == sum(map(len, expected.values()))
    assert counters.prompt_tokens_total == sum(len(one.prompt) for one in requests)
    assert counters.shared_tokens_total == sum(one.num_shared for one in requests)
    assert (counters.shared_tokens_total > 0) == (kind != "a state of each row")
    assert counters.preemptions_total == engine.scheduler.num_preemptions
    assert counters.preemptions_total == sum(len(plan.preempted) for plan in plans)
    assert (counters.preemptions_total > 0) == ("num_blocks" in KINDS[kind])
    parts = [
        getattr(counters, f"{part}_seconds_total") for part in ("scheduling", "sampling", "draft", "chunk", "step")
    ]
    assert min(parts) > 0 and sum(parts) < seconds
    assert counters.requests_failed_total == counters.requests_cancelled_total == 0
    assert {one.reading for one in requests} <= {"", "one token is read"}
    assert any(one.reading for one in requests) == (kind == "candidates of the device")


def test_steps_chunks_and_checks_are_counted():
    engine = engine_of()
    one = drafted("a", [5, 6, 7, 8, 9], 7)
    serve(engine, [one])
    counters = engine.counters
    # Two candidates behind the first token, two behind the fourth: three tokens each; the last needs no candidate.
    assert engine.runner._loaded.runs == ["prefill_3_6", "prefill_2_2_6", "extend_3_3", "extend_3_3"]
    assert (counters.chunks_total, counters.steps_total, counters.checks_total) == (2, 2, 2)
    assert (counters.candidate_tokens_total, counters.accepted_tokens_total, counters.answer_tokens_total) == (4, 4, 7)
    wrong = drafted("b", [5, 6, 7], 5, 4)
    serve(engine, [wrong])
    assert wrong.answer == answer_of([5, 6, 7], 5)
    assert (counters.candidate_tokens_total, counters.accepted_tokens_total) == (4 + 2 + 2, 4 + 0 + 2)
    assert counters.checks_total == 4


def test_an_answer_ends_with_its_last_token():
    prompt = [5, 6, 7]
    answer = answer_of(prompt, 8)
    for end in (1, 2, 4):
        one = drafted("a", prompt, 8, end_ids=frozenset([answer[end]]))
        serve(engine_of(), [one])
        assert one.answer == answer[: answer.index(answer[end]) + 1]


def test_candidates_stay_within_an_answer_and_a_call():
    one, rooms = drafted("a", [5, 6, 7], 6), []
    propose = one.draft.propose
    one.draft.propose = lambda ids, room: rooms.append(room) or propose(ids, room)
    serve(engine_of(), [one])
    assert rooms == [EXTEND - 1, 1] and one.answer == answer_of([5, 6, 7], 6)
    one = drafted("a", [5, 6, 7], 9)
    serve(engine_of(extend=()), [one])
    assert one.answer == answer_of([5, 6, 7], 9)


def logprobs_of(prompt: list[int], answer: list[int]) -> list[float]:
    rows = torch.stack([logits_of(next_token(prompt + answer[:place])) for place in range(len(answer))])
    return rows.log_softmax(-1)[range(len(answer)), answer].tolist()


@pytest.mark.parametrize("num_read", [0, 2, 5])
def test_settings_are_those_of_the_request(num_read):
    """The reference is torch: the same processors on logits that are known, and `multinomial`."""
    prompt, engine = [5, 6, 7], engine_of()
    engine.runner._loaded.num_read = num_read
    sampled = request(
        "sampled",
        prompt,
        8,
        generator=torch.Generator().manual_seed(3),
        processors=LogitsProcessorList([TopKLogitsWarper(3)]),
    )

    def ends(ids, _):
        return torch.tensor([ids.shape[1] > 5])

    penalty = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(30.0)])
    others = [
        request("logprobs", prompt, 8, wants_logprobs=True),
        request("penalty", prompt, 8, processors=penalty),
        request("criteria", prompt, 8, criteria=StoppingCriteriaList([ends])),
    ]
    serve(engine, [sampled, *others])
    generator, tokens = torch.Generator().manual_seed(3), [*prompt]
    for _ in range(8):
        scores = TopKLogitsWarper(3)(None, logits_of(next_token(tokens))[None])
        tokens.append(int(torch.multinomial(scores.softmax(-1), 1, generator=generator)))
    assert sampled.answer == tokens[3:] and sampled.logprobs == []
    assert others[0].answer == answer_of(prompt, 8)
    assert others[0].logprobs == pytest.approx(logprobs_of(prompt, others[0].answer))
    tokens = [*prompt]
    for _ in range(8):
        tokens.append(int(penalty(torch.tensor([tokens]), logits_of(next_token(tokens))[None]).argmax()))
    assert others[1].answer == tokens[3:] and others[2].answer == answer_of(prompt, 3)
    readings = {one.request_id: one.reading for one in (sampled, *others)}
    all_logits = f"top_k=3 is not below max_topk={num_read}"
    words = {
        "sampled": "5 candidates are read" if num_read == 5 else f"all logits are read: {all_logits}",
        "logprobs": "all logits are read: logprobs are returned",
        "penalty": "all logits are read: RepetitionPenaltyLogitsProcessor changes them",
        "criteria": "one token is read",
    }
    assert readings == (words if num_read else dict.fromkeys(words, ""))


@pytest.mark.parametrize("options", [{}, {"enable_prefix_caching": False}])
def test_what_is_shared_can_be_chosen(options):
    loaded = engine_of().runner._loaded
    engine = Engine(Runner(loaded, loaded.signature), **options)
    prompt = [5, 6, 7, 8, 9, 10]
    for _ in range(2):
        one = request("a", prompt, 2)
        serve(engine, [one])
    assert one.num_shared == (0 if options else 3) == engine.counters.shared_tokens_total
    reader = drafted("reader", prompt, 2)
    serve(engine, [reader])
    assert reader.num_shared == 0, "its draft reads hidden states of the whole prompt"
    plain = request("plain", prompt, 2, draft=SequenceDraft(Same(3)))
    serve(engine, [plain])
    assert plain.num_shared == (0 if options else 3)


def broken(*_):
    raise ArithmeticError("broken")


def test_what_fails_ends_alone():
    engine, prompt = engine_of(), [5, 6, 7]
    processors = LogitsProcessorList([lambda ids, scores: broken() if ids.shape[1] == 5 else scores])
    draft = SimpleNamespace(reads_prompt=False, propose=broken, keep=lambda *_: None)
    bad = [request("processor", prompt, 6, processors=processors), request("draft", prompt, 6, draft=draft)]
    good = request("good", prompt, 6)
    for one in (*bad, good):
        engine.add(one)
    changed = finish(engine)
    assert [changed.count(one) for one in (*bad, good)] == [3, 2, 6]
    assert [str(one.error) for one in bad] == ["broken"] * 2 and [len(one.answer) for one in bad] == [2, 1]
    assert good.answer == answer_of(prompt, 6) and engine.counters.requests_failed_total == 2
    assert engine.counters.requests_finished_total == 1 and engine.counters.requests_cancelled_total == 0


def test_requests_are_cancelled_before_the_next_step():
    engine = engine_of()
    requests = [request(name, [5, 6, 7], 6) for name in "abc"]
    for one in requests:
        engine.add(one)
    engine.step()
    engine.step()
    for name in ("c", "a", "c", "unknown"):
        engine.cancel(name)
    assert engine.has("a") and not engine.has("unknown")
    changed = engine.step()
    assert changed[:2] == [requests[0], requests[2]] and changed[2] is requests[1]
    assert [one.status for one in requests] == [Status.FAILED, Status.DECODING, Status.FAILED]
    assert not engine.has("a") and engine.counters.requests_cancelled_total == 2
    again = request("a", [8], 2)
    serve(engine, [again])
    assert again.answer == answer_of([8], 2) and requests[1].answer == answer_of([5, 6, 7], 6)
    error = ValueError("over")
    engine.add(last := request("d", [5], 3))
    assert engine.fail_all(error) == [last] and last.error is error and not engine.has_work
    assert engine.counters.requests_cancelled_total == 2 and engine.counters.requests_failed_total == 3


def test_times_of_a_request_are_those_of_the_clock(monkeypatch):
    """Each call takes a second: a prompt of two chunks, then two steps, beside the times of the host."""
    engine = engine_of()
    runs, laps = engine.runner._loaded.runs, []

    def lap_s(timer):
        laps.append(len(runs))
        timer.num_untimed = 1
        return float(laps[-1] - laps[-2]) if laps[1:] else 0.0

    monkeypatch.setattr(DeviceTimer, "lap_s", lap_s)
    cost, one = engine.clock.cost, request("a", [5, 6, 7, 8, 9], 3)
    engine.clock.now_s = 10.0
    serve(engine, [one])
    times, chunk, step = one.simulated, 1 + cost.chunk_s, 1 + cost.step_s + cost.row_s
    assert (times.arrival_s, times.start_s, times.num_tokens) == (10.0, 10.0, 3)
    assert times.first_token_s == pytest.approx(10 + 2 * chunk)
    assert times.end_s == pytest.approx(10 + 2 * chunk + 2 * step)
    counters = engine.counters
    assert counters.simulated_seconds_total == pytest.approx(2 * chunk + 2 * step)
    assert counters.simulated_ttft_seconds_total == pytest.approx(2 * chunk)
    assert counters.untimed_calls_total == 4
    late = request("b", [5], 1)
    late.simulated.arrival_s = 3.0
    serve(engine, [late])
    assert late.simulated.arrival_s == 3.0
