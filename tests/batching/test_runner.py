"""What a step and a copy move: rows, tables, blocks, and the code that a request runs on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.batching import Engine, Runner
from optimum_neuron.engine import StateSignature
from tests.batching.stand_in import (
    Program,
    answer_of,
    engine_of,
    finish,
    request,
    serve,
)
from tests.engine.counting import BLOCK, EXTEND, NUM_ROWS, SLOTS


@pytest.mark.parametrize("num_read", [0, 4])
def test_every_row_goes_through_the_smallest_step_that_holds_it(num_read):
    engine = engine_of()
    engine.runner._loaded.num_read, engine.runner._loaded.reads_all = num_read, not num_read
    long, short = request("long", [5, 6, 7], 9), request("short", [9], 6)
    serve(engine, [long, short])
    assert (long.answer, short.answer) == (answer_of([5, 6, 7], 9), answer_of([9], 6))
    begin, both = ["prefill_3_6", "prefill_2_2_6", *["decode_1_6"] * 3], ["decode_1_12", "decode_1_6"]
    assert engine.runner._loaded.runs == [*begin, *both * 3, *["decode_1_12"] * 2]


def test_a_request_goes_on_in_its_row_with_other_blocks():
    engine = Engine(engine_of(num_blocks=5).runner, enable_prefix_caching=False)
    first, gone = (request(name, [5, 6, 7], 6, priority=name == "gone") for name in ("first", "gone"))
    for one in (first, gone):
        engine.add(one)
    finish(engine, lambda: first.is_over)
    last = request("last", [5], 5)
    engine.add(last)
    finish(engine, lambda: gone in engine.scheduler.running)
    assert gone.row == 1 and last.row == 0
    finish(engine)
    assert first.answer == gone.answer == answer_of([5, 6, 7], 6) and last.answer == answer_of([5], 5)


@pytest.mark.parametrize("num_steps", [1, 4])
def test_requests_end_on_the_code_that_they_began_with(num_steps):
    engine = engine_of()
    loaded, prompt = engine.runner._loaded, [*range(5, 13)]
    assert engine.runner.levels == "first" and engine.runner._state.executor is None
    before = request("before", prompt, 4)
    engine.add(before)
    for _ in range(num_steps):
        engine.step()
    assert engine.num_on_earlier_code == 0 and not engine.runner.is_earlier(before)
    loaded.executor = SimpleNamespace(more=4, levels="second")
    assert engine.num_on_earlier_code == 1 and engine.runner.levels == "second"
    after = request("after", prompt, 4)
    assert not engine.runner.is_earlier(after)
    serve(engine, [after])
    assert engine.num_on_earlier_code == 0 and after.num_shared == 0
    assert (before.answer, after.answer) == (answer_of(prompt, 4), answer_of(prompt, 4, 4))
    later = request("later", prompt, 4)
    serve(engine, [later])
    assert (later.answer, later.num_shared) == (after.answer, 6)


def test_sizes_of_a_program():
    runner = engine_of(num_blocks=6).runner
    assert (runner.num_rows, runner.num_slots, runner.chunk_sizes) == (NUM_ROWS, SLOTS, (2, 3))
    assert (runner.num_blocks, runner.block_size, runner.block_bytes) == (6, BLOCK, 4 * BLOCK)
    assert (runner.most_candidates, runner.has_row_states) == (EXTEND - 1, False)
    loaded = Program(extras=("num_new_tokens",))
    del loaded.program.states["tokens.0"]
    runner = Runner(loaded, loaded.signature)
    assert (runner.num_blocks, runner.block_size, runner.has_row_states) == (NUM_ROWS * SLOTS // BLOCK + 1, BLOCK, True)


def test_blocks_and_rows_are_copied_and_cleared():
    """Blocks of four have heads before their slots; a state without slots stays when blocks are cleared."""
    loaded = Program(extras=("num_new_tokens",), num_blocks=6)
    loaded.program.states["tokens.0"] = TensorSpec(shape=(6, 2, 4, 2), dtype="float32")
    axes = ("num_blocks", "heads", "block_size", "width")
    loaded.signature.states["tokens"] = StateSignature(axes=axes)
    runner = Runner(loaded, loaded.signature)
    pool, rows = runner._state
    assert runner.block_size == 4
    pool.copy_(torch.arange(96).reshape(pool.shape) + 1)
    rows.copy_(torch.tensor([7.0, 8.0]))
    before = pool.clone()
    saved = runner.save([4, 2], 1)
    runner.clear([4])
    assert not pool[4].any() and torch.equal(pool[:4], before[:4]) and rows.tolist() == [7, 8]
    runner.restore(saved, [1, 3], 0)
    assert torch.equal(pool[[1, 3]], before[[4, 2]]) and rows.tolist() == [8, 8]
    before = pool.clone()
    runner.clear_slots([5, 3], range(2, 6))
    before[5, :, 2:] = before[3, :, :2] = 0
    assert torch.equal(pool, before) and rows.tolist() == [8, 8]


def test_a_step_of_all_rows_takes_the_tables_as_they_are():
    engine, tables = engine_of(), []
    run = engine.runner._loaded.run

    def noted(graph, inputs, state):
        tables.append(inputs[2].data_ptr() == engine.runner._tables_BM.data_ptr())
        return run(graph, inputs, state)

    engine.runner._loaded.run = noted
    serve(engine, [request("a", [5], 5), request("b", [6], 2)])
    assert tables == [False, False, False, True, False, False], "two prompts, and steps of two rows or one"
