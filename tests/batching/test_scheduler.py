"""Who runs, without a model: rows, blocks, chunks, preemption, and sharing."""

import random

from optimum_neuron.batching import BlockPool, Request, Scheduler, chain_hashes
from optimum_neuron.batching.request import Status


def request(
    name: str, num_prompt: int, num_new: int, *, first: int = 0, block_size: int = 0, priority: int = 0
) -> Request:
    prompt = list(range(first, first + num_prompt))
    hashes = chain_hashes(prompt, block_size) if block_size else []
    return Request(request_id=name, prompt=prompt, max_new_tokens=num_new, hashes=hashes, priority=priority)


def run(scheduler: Scheduler) -> list[str]:
    """Do one plan; return what it did."""
    plan = scheduler.plan()
    for one, blocks, row in plan.resumed:
        assert one.blocks[: len(blocks)] == blocks and one.row == row
        assert len(one.blocks) == scheduler.pool.num_for(max(len(one.prompt) + 1, one.num_next))
    assert all(one.status == (Status.DECODING if one.is_prompt_read else Status.PREFILLING) for one, *_ in plan.resumed)
    done = [f"-{one.request_id}" for one, *_ in plan.preempted] + [f"+{one.request_id}" for one, *_ in plan.resumed]
    for chunk in plan.chunks:
        reader = chunk.request
        assert reader.status == Status.PREFILLING and reader.started_s > 0
        assert len(reader.blocks) >= scheduler.pool.num_for(len(reader.prompt) + 1), "a prompt gets its blocks at once"
        done.append(f"{reader.request_id}[{chunk.start}:{chunk.start + chunk.num_tokens}]")
        scheduler.read(chunk)
        if chunk.is_last:
            answer(scheduler, reader)
    for one in plan.steps:
        assert len(one.blocks) >= scheduler.pool.num_for(one.num_next)
        done.append(one.request_id)
        one.num_computed += 1
        answer(scheduler, one)
    return done


def answer(scheduler: Scheduler, one: Request) -> None:
    one.add(0, None)
    one.status = Status.DECODING
    if len(one.answer) == one.max_new_tokens:
        scheduler.end(one)
        assert (one.blocks, one.row) == ([], None)


def test_prompts_are_read_in_chunks_between_steps():
    scheduler = Scheduler(BlockPool(num_blocks=20, block_size=4), num_rows=2, chunk_sizes=(4,))
    for one in (request("a", 3, 4), request("b", 9, 2), request("c", 1, 1)):
        scheduler.add(one)
    assert [run(scheduler) for _ in range(5)] == [
        ["a[0:3]"],
        ["b[0:4]", "a"],
        ["b[4:8]", "a"],
        ["b[8:9]", "a"],
        ["c[0:1]", "b"],
    ]
    assert not scheduler.has_work
    assert scheduler.pool.num_used == 0


def test_the_last_request_gives_way_and_goes_on():
    scheduler = Scheduler(BlockPool(num_blocks=5, block_size=2), num_rows=2, chunk_sizes=(4,))
    first, second = request("a", 3, 4), request("b", 3, 4)
    scheduler.add(first)
    scheduler.add(second)
    done = [run(scheduler) for _ in range(8)]
    assert ["-b", "a"] in done
    assert any("+b" in one for one in done)
    assert not scheduler.has_work
    assert (len(first.answer), len(second.answer), scheduler.num_preemptions) == (4, 4, 1)


def test_a_later_request_does_not_overtake_one_that_gave_way():
    scheduler = Scheduler(BlockPool(num_blocks=7, block_size=2), num_rows=3, chunk_sizes=(2,))
    for name, length in (("a", 3), ("b", 3), ("c", 1)):
        scheduler.add(request(name, length, 7, block_size=2))
    while not scheduler.preempted:
        run(scheduler)
    (gone,) = scheduler.preempted
    assert (gone.request_id, gone.row, gone.blocks) == ("c", None, [])
    scheduler.add(request("d", 1, 1))
    rest = [*(name for _ in range(20) for name in run(scheduler))]
    assert rest.index("+c") < rest.index("d[0:1]") and not scheduler.has_work


def test_requests_that_wait_or_gave_way_can_end():
    scheduler = Scheduler(BlockPool(num_blocks=5, block_size=2), num_rows=2, chunk_sizes=(4,))
    requests = [request(name, 3, 4) for name in "abc"]
    for one in requests:
        scheduler.add(one)
    while not scheduler.preempted:
        run(scheduler)
    (gone,) = scheduler.preempted
    gone.saved = "a copy on the host"
    assert scheduler.waiting == requests[2:] and scheduler.has_work and [one.order for one in requests] == [0, 1, 2]
    for one in (gone, requests[2]):
        scheduler.end(one)
        scheduler.end(one)
    assert (scheduler.preempted, scheduler.waiting, gone.saved, scheduler.running) == ([], [], None, requests[:1])


def test_a_request_that_gave_way_keeps_what_it_shared():
    """As in vLLM, whose num_cached_tokens are those of the first time."""
    scheduler = Scheduler(BlockPool(num_blocks=7, block_size=2), num_rows=2, chunk_sizes=(2,))
    first, second = (request(name, 5, 6, block_size=2) for name in "ab")
    scheduler.add(first)
    scheduler.add(second)
    while not scheduler.preempted:
        run(scheduler)
    assert scheduler.preempted == [second] and second.num_shared == 4


def test_rows_are_those_of_a_step():
    scheduler = Scheduler(BlockPool(num_blocks=20, block_size=4), num_rows=2, chunk_sizes=(4,))
    for name in "abc":
        scheduler.add(request(name, 1, 3))
        assert scheduler.has_work
    assert [run(scheduler) for _ in range(2)] == [["a[0:1]"], ["b[0:1]", "a"]]
    assert [one.row for one in scheduler.running] == [0, 1]
    assert [run(scheduler) for _ in range(2)] == [["a", "b"], ["c[0:1]", "b"]] and scheduler.running[-1].row == 0
    assert (scheduler.waiting, scheduler.preempted, scheduler.has_work) == ([], [], True)


def test_blocks_that_are_shared_are_not_free_too():
    """ "c" begins with two blocks that nobody uses, and needs a third one, which "b" has."""
    scheduler = Scheduler(BlockPool(num_blocks=5, block_size=2), num_rows=2, chunk_sizes=(2,))
    for name, length, number, first in (("a", 5, 1, 0), ("b", 3, 2, 50), ("c", 5, 1, 0)):
        scheduler.add(request(name, length, number, first=first, block_size=2))
    done = [run(scheduler) for _ in range(7)]
    assert done == [["a[0:2]"], ["a[2:4]"], ["a[4:5]"], ["b[0:2]"], ["b[2:3]"], ["b"], ["c[4:5]"]]


def test_short_chunks_are_not_shared():
    """A block that a short chunk computed may differ in rounding from one of a whole chunk."""
    scheduler = Scheduler(BlockPool(num_blocks=20, block_size=2), num_rows=3, chunk_sizes=(2, 4))
    short, first, second = (request(name, length, 9, block_size=2) for name, length in (("a", 6), ("b", 9), ("c", 9)))
    for one in (short, first):
        scheduler.add(one)
    assert run(scheduler) == ["a[0:4]"] and len(scheduler.pool.find(first.hashes)) == 2
    assert run(scheduler) == ["a[4:6]"] and run(scheduler)[0] == "b[4:8]"
    scheduler.add(second)
    assert [name for _ in range(3) for name in run(scheduler) if "[" in name] == ["b[8:9]", "c[8:9]"]
    assert second.blocks[:4] == first.blocks[:4] and short.blocks[2] not in second.blocks


def test_lower_priorities_come_first_and_give_way_last():
    scheduler = Scheduler(BlockPool(num_blocks=5, block_size=2), num_rows=2, chunk_sizes=(4,))
    for name, priority in (("a", 1), ("b", 1), ("c", 0), ("d", 0)):
        scheduler.add(request(name, 3, 4, priority=priority))
    done = [run(scheduler) for _ in range(16)]
    assert [one[0] for one in done[:2]] == ["c[0:3]", "d[0:3]"]
    assert ["-d", "c"] in done
    ends = ["".join(one) for one in done]
    # "d" gave way, and still goes on before "a" and "b" begin.
    assert next(i for i, one in enumerate(ends) if "+d" in one) <= next(i for i, one in enumerate(ends) if "a[" in one)
    assert next(i for i, one in enumerate(ends) if "a[" in one) < next(i for i, one in enumerate(ends) if "b[" in one)
    assert not scheduler.has_work


def test_a_request_of_a_lower_number_overtakes_one_that_gave_way():
    scheduler = Scheduler(BlockPool(num_blocks=5, block_size=2), num_rows=2, chunk_sizes=(4,))
    for name in ("a", "b"):
        scheduler.add(request(name, 3, 4, priority=1))
    done = []
    while not any("-b" in one for one in done):
        done.append(run(scheduler))
    scheduler.add(request("c", 3, 2, priority=0))
    rest = [*(name for _ in range(9) for name in run(scheduler))]
    assert rest.index("c[0:3]") < rest.index("+b")
    assert not scheduler.has_work


def test_prompts_share_whole_chunks_but_not_their_last_token():
    scheduler = Scheduler(BlockPool(num_blocks=20, block_size=2), num_rows=2, chunk_sizes=(4,))
    for name, length in (("a", 11), ("b", 11), ("c", 8)):
        scheduler.add(request(name, length, 1, block_size=2))
    assert run(scheduler) + run(scheduler) + run(scheduler) == ["a[0:4]", "a[4:8]", "a[8:11]"]
    assert run(scheduler) == ["b[8:11]"]
    assert run(scheduler) == ["c[4:8]"]
    scheduler.add(request("d", 11, 1, first=1, block_size=2))
    assert run(scheduler) == ["d[0:4]"]


def test_the_block_of_the_last_token_is_not_shared():
    """The request writes it again, while the first one may still read it."""
    pool = BlockPool(num_blocks=20, block_size=2)
    scheduler = Scheduler(pool, num_rows=2, chunk_sizes=(2,))
    first, second = request("a", 4, 9, block_size=2), request("b", 4, 9, block_size=2)
    scheduler.add(first)
    assert run(scheduler) + run(scheduler) == ["a[0:2]", "a[2:4]"]
    scheduler.add(second)
    assert run(scheduler) == ["b[2:4]", "a"]
    assert second.num_shared == 2 and {*first.blocks} & {*second.blocks} == {first.blocks[0]}
    assert pool.num_used == 5


def test_short_ends_of_prompts_are_read_together():
    scheduler = Scheduler(BlockPool(num_blocks=40, block_size=4), num_rows=5, chunk_sizes=(2, 4, 8))
    for name, length in (("a", 10), ("b", 3), ("c", 2), ("d", 1), ("e", 5)):
        scheduler.add(request(name, length, 2))
    assert [run(scheduler) for _ in range(4)] == [
        ["a[0:8]"],
        ["a[8:10]", "b[0:3]", "c[0:2]"],
        ["d[0:1]", "a", "b", "c"],
        ["e[0:5]", "d"],
    ]


def test_a_prompt_behind_a_short_end_shares_what_was_read_before():
    scheduler = Scheduler(BlockPool(num_blocks=20, block_size=2), num_rows=3, chunk_sizes=(2, 4))
    for name, length in (("a", 5), ("b", 6), ("c", 9)):
        scheduler.add(request(name, length, 9, block_size=2))
    assert run(scheduler) == ["a[0:4]"]
    assert run(scheduler)[:2] == ["a[4:5]", "b[4:6]"]
    assert run(scheduler)[0] == "c[4:8]"


def test_any_load_is_answered_and_leaks_no_block():
    draw = random.Random(0)
    pool = BlockPool(num_blocks=8, block_size=2)
    scheduler = Scheduler(pool, num_rows=3, chunk_sizes=(1, 2, 4))
    requests = [
        request(
            str(number),
            draw.randint(1, 9),
            draw.randint(1, 5),
            first=draw.randint(0, 1),
            block_size=2,
            priority=draw.choice((0, 0, 0, -1, 1)),
        )
        for number in range(300)
    ]
    left, ended = list(requests), set()
    while left or scheduler.has_work:
        if left and draw.random() < 0.4:
            scheduler.add(left.pop())
        run(scheduler)
        if draw.random() < 0.05 and scheduler.running:
            one = draw.choice(scheduler.running)
            scheduler.end(one)
            ended.add(one.request_id)
        rows = [one.row for one in scheduler.running]
        assert len(set(rows)) == len(rows) and set(rows) <= {0, 1, 2}
        assert pool.num_used == len({block for one in scheduler.running for block in one.blocks})
    assert scheduler.num_preemptions > 0
    assert all(len(one.answer) == one.max_new_tokens for one in requests if one.request_id not in ended)
    assert (pool.num_used, pool.num_free) == (0, pool.num_usable)


def test_a_request_that_gives_way_stays_away_for_the_whole_plan():
    """Candidates that were dropped leave it with more blocks than it needs: it could come back at once."""
    scheduler = Scheduler(BlockPool(num_blocks=10, block_size=1), num_rows=2, chunk_sizes=(1,))
    first, second = request("a", 1, 6), request("b", 1, 8)
    for one in (first, second):
        scheduler.add(one)
    assert [run(scheduler), run(scheduler)] == [["a[0:1]"], ["b[0:1]", "a"]]
    second.candidates = [1, 2, 3, 4]
    assert run(scheduler) == ["a", "b"] and scheduler.pool.num_free == 0
    second.candidates = []
    assert run(scheduler) == ["-b", "a"]
    assert run(scheduler) == ["+b", "a", "b"]
