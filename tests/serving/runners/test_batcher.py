"""The queue of models that answer in one call: batches, order, limits, and clients that leave; no model is needed."""

from __future__ import annotations

import asyncio
import threading

import pytest

from optimum_neuron.errors import QueueFullError, RequestError
from optimum_neuron.serving.runners.batcher import Batcher


@pytest.fixture
def gate():
    """Batches wait until it is set."""
    return threading.Event()


@pytest.fixture
def batches():
    return []


@pytest.fixture
def batcher(gate, batches):
    def work(items, is_wanted):
        batches.append(list(items))
        gate.wait(10)
        if "bad" in items:
            raise ValueError("bad")
        return [item.upper() for item in items]

    batcher = Batcher(work, max_batch_size=3, max_queue_size=4, key=lambda item: item[0] == "x")
    yield batcher
    gate.set()
    batcher.close(10)


async def started(batches, number=1):
    while len(batches) < number:
        await asyncio.sleep(0.001)


def test_items_of_several_requests_share_batches(batcher, gate, batches):
    async def ask():
        first = asyncio.create_task(batcher.run(["a"]))
        await started(batches)
        others = [asyncio.create_task(batcher.run(items)) for items in (["b", "c", "d", "e"], ["f"], ["xa", "g"])]
        await asyncio.sleep(0.01)
        gate.set()
        return await asyncio.gather(first, *others)

    assert asyncio.run(ask()) == [["A"], ["B", "C", "D", "E"], ["F"], ["XA", "G"]]
    assert batches == [["a"], ["b", "c", "d"], ["e", "f"], ["xa"], ["g"]]


def test_lower_priorities_come_first(batcher, gate, batches):
    async def ask():
        first = asyncio.create_task(batcher.run(["a"]))
        await started(batches)
        others = [
            asyncio.create_task(batcher.run([item] * 3, priority=number)) for item, number in (("b", 1), ("c", 0))
        ]
        await asyncio.sleep(0.01)
        gate.set()
        await asyncio.gather(first, *others)

    asyncio.run(ask())
    assert [batch[0] for batch in batches] == ["a", "c", "b"]


def test_a_full_queue_refuses_and_those_that_leave_make_room(batcher, gate, batches):
    async def ask():
        first = asyncio.create_task(batcher.run(["a"]))
        await started(batches)
        waiting = [asyncio.create_task(batcher.run(["b"])) for _ in range(4)]
        await asyncio.sleep(0.01)
        assert (batcher.num_running, batcher.num_waiting) == (1, 4)
        with pytest.raises(QueueFullError):
            await batcher.run(["c"])
        for task in waiting[:2]:
            task.cancel()
        await asyncio.sleep(0.01)
        last = asyncio.create_task(batcher.run(["d"]))
        await asyncio.sleep(0.01)
        gate.set()
        return await asyncio.gather(first, *waiting[2:], last)

    assert asyncio.run(ask()) == [["A"], ["B"], ["B"], ["D"]]
    assert batches == [["a"], ["b", "b", "d"]]


def test_a_request_that_fails_fails_alone(batcher, gate, batches):
    async def ask():
        first = asyncio.create_task(batcher.run(["a"]))
        await started(batches)
        others = [asyncio.create_task(batcher.run([item])) for item in ("b", "bad")]
        await asyncio.sleep(0.01)
        gate.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    first, good, bad = asyncio.run(ask())
    assert (first, good) == (["A"], ["B"]) and isinstance(bad, ValueError)


def test_a_request_has_a_time_limit(batcher):
    with pytest.raises(RequestError) as caught:
        asyncio.run(batcher.run(["a"], timeout_s=0.02))
    assert caught.value.details["status"] == 408


def test_the_end_answers_what_waits_and_refuses_more(batcher, gate, batches):
    async def ask():
        jobs = [asyncio.create_task(batcher.run([item])) for item in "ab"]
        await started(batches)
        gate.set()
        await asyncio.to_thread(batcher.close, 10)
        with pytest.raises(RequestError):
            await batcher.run(["c"])
        return await asyncio.gather(*jobs)

    assert asyncio.run(ask()) == [["A"], ["B"]]
