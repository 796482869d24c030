"""What the framework orders between engines, and what nobody orders: races, with both lines."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from optimum_neuron.errors import ConfigError, KernelError
from optimum_neuron.nki import analyze, isa as nisa, jit, language as nl
from tests.raising import raises


@pytest.fixture
def x():
    return torch.randn(128, 64, generator=torch.Generator().manual_seed(0))


def text_of(line):
    file, _, number = line.rpartition(":")
    assert file == __file__
    return Path(file).read_text().splitlines()[int(number) - 1].strip()


def store(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def chained(x):
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    nisa.activation(tile, nl.exp, tile)
    nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
    nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    return store(tile)


def test_what_the_framework_orders_has_both_lines(x):
    hazards = analyze(chained, x).hazards
    found = {(one.kind, one.engines, text_of(one.first_line), text_of(one.second_line)) for one in hazards}
    load, exp = "nisa.dma_copy(tile, x)", "nisa.activation(tile, nl.exp, tile)"
    scale, add = "nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)", "nisa.tensor_scalar(tile, tile, nl.add, 1.0)"
    assert ("read after write", ("dma", "scalar"), load, exp) in found
    assert ("write after write", ("dma", "scalar"), load, exp) in found
    assert ("read after write", ("scalar", "vector"), exp, scale) in found
    assert not any(first == scale and second == add for _, _, first, second in found)
    assert all(one.tensor == hazards[0].tensor and one.num_pairs == 1 for one in hazards if one.buffer == "sbuf")


def test_a_tile_that_is_overwritten_while_it_is_read_is_a_hazard(x):
    def body(x):
        tile, other = nl.load(x), nl.ndarray(x.shape, x.dtype, nl.sbuf)
        nisa.activation(other, nl.exp, tile)
        nisa.memset(tile, 0.0, engine=nisa.engine.vector)
        nisa.memset(tile, 1.0, engine=nisa.engine.gpsimd)
        return store(other)

    found = {(one.kind, one.engines) for one in analyze(body, x).hazards}
    assert ("write after read", ("scalar", "vector")) in found and ("write after write", ("vector", "gpsimd")) in found
    assert ("write after read", ("scalar", "gpsimd")) not in found, "the first write is between them"


def placed(x):
    one = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf, address=(0, 1024))
    nisa.dma_copy(one, x)
    two = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf, address=(0, 1152))
    nisa.memset(two, 0.0)
    nisa.tensor_tensor(two, two, one, nl.add)
    return store(two)


def in_turns(x):
    one = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf, address=(0, 1024))
    nisa.dma_copy(one, x)
    kept = nl.copy(one)
    two = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf, address=(0, 1152))
    nisa.memset(two, 0.0)
    nisa.tensor_tensor(two, two, kept, nl.add)
    return store(two)


def test_tiles_at_the_same_bytes_are_a_race(x):
    (race,) = analyze(placed, x).races
    assert race.rule == "placement" and text_of(race.first_line) == "nisa.memset(two, 0.0)"
    assert text_of(race.second_line) == "nisa.tensor_tensor(two, two, one, nl.add)"
    assert race.hint and race.document and len(race.tensors) == 2
    assert not analyze(in_turns, x).races


def shared(x, waits=True, part=64):
    """Core 0 writes what core 1 reads."""
    core = nl.program_id(0)
    between = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    columns = slice(core * part, core * part + 64 - (part and 32))
    nisa.dma_copy(between[:, columns], x[:, columns])
    if waits:
        nisa.core_barrier(between, cores=(0, 1))
    if core == 1:
        nisa.dma_copy(out, between)
    return out


def test_cores_that_share_memory_without_a_barrier_are_a_race(x):
    both = [jit(lambda x, waits=waits: shared(x, waits, 32))[2] for waits in (True, False)]
    assert not analyze(both[0], x).races
    races = analyze(both[1], x).races
    assert {race.rule for race in races} == {"core_barrier"}
    lines = {(text_of(race.first_line), text_of(race.second_line)) for race in races}
    assert lines == {("nisa.dma_copy(between[:, columns], x[:, columns])", "nisa.dma_copy(out, between)")}


def test_interleaved_columns_are_no_race(x):
    def body(x):
        core = nl.program_id(0)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out[:, core::2], x[:, core::2])
        return out

    assert not analyze(jit(body)[2], x).races


def scheduled(x):
    one, two = nl.ndarray(x.shape, x.dtype, nl.sbuf), nl.ndarray(x.shape, x.dtype, nl.sbuf)
    nisa.dma_copy(one, x)
    nisa.dma_copy(two, x)
    nisa.tensor_scalar(one, one, nl.multiply, 2.0, name="first")
    nisa.tensor_scalar(two, two, nl.multiply, 3.0, name="second")
    nisa.tensor_tensor(one, one, two, nl.add, name="sum")
    return store(one)


def test_a_schedule_orders_instructions_by_name(x):
    kernel = jit(scheduled)
    order = [event.record.name for event in analyze(kernel, x).events if event.record.name]
    assert order == ["first", "second", "sum"]
    turned = analyze(kernel.with_schedule([("first", "second")]), x)
    assert [event.record.name for event in turned.events if event.record.name] == ["second", "first", "sum"]
    assert not turned.races
    torch.testing.assert_close(kernel.with_schedule([("first", ["second"])])(x), 5 * x)


def test_a_schedule_against_the_data_is_a_race(x):
    (race,) = analyze(jit(scheduled).with_schedule([("second", "sum")]), x).races
    assert race.rule == "schedule"
    assert text_of(race.first_line).endswith('name="second")') and text_of(race.second_line).endswith('name="sum")')


def test_a_schedule_that_overwrites_what_an_earlier_reader_needs_is_a_race(x):
    def body(x):
        one, two, three = (nl.ndarray(x.shape, x.dtype, nl.sbuf) for _ in range(3))
        nisa.dma_copy(one, x)
        nisa.tensor_scalar(two, one, nl.add, 1.0, name="early")
        nisa.activation(three, nl.exp, one, name="late")
        nisa.memset(one, 0.0, name="clear")
        nisa.tensor_tensor(two, two, three, nl.add)
        return store(two)

    for reader in ("early", "late"):
        (race,) = analyze(jit(body).with_schedule([(reader, "clear")]), x).races
        assert race.rule == "schedule" and f'name="{reader}"' in text_of(race.first_line) + text_of(race.second_line)


@pytest.mark.parametrize(
    ("schedule", "details"),
    [
        ([("first", "second"), ("second", "first")], {"names": ["first", "second"]}),
        ([("first",)], {"entry": "('first',)"}),
        (["first"], {"entry": "'first'"}),
        ([("first", 3)], {"entry": "('first', 3)"}),
        ([("frist", "second")], {"name": "frist"}),
    ],
)
def test_bad_schedules_are_refused(schedule, details, x):
    with raises(ConfigError, **details):
        analyze(jit(scheduled).with_schedule(schedule), x)


def test_advice_about_banks_and_ports(x, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "gen2")
    left = torch.randn(128, 128, generator=torch.Generator().manual_seed(1))

    def one_bank(left, x):
        one, two = nl.load(left), nl.load(x)
        total = nl.ndarray((128, 64), nl.float32, buffer=nl.psum)
        parts = nl.ndarray((128, 4, 64), nl.float32, buffer=nl.sbuf)
        for place in range(4):
            nisa.nc_matmul(total, one, two, accumulate=False)
            nisa.tensor_copy(parts[:, place], total)
        return store(parts)

    def many_banks(left, x):
        one, two = nl.load(left), nl.load(x)
        parts = nl.ndarray((128, 4, 64), nl.float32, buffer=nl.sbuf)
        for place in range(4):
            total = nl.ndarray((128, 64), nl.float32, buffer=nl.psum)
            nisa.nc_matmul(total, one, two)
            if place % 2:
                nisa.activation(parts[:, place], nl.copy, total)
            else:
                nisa.tensor_copy(parts[:, place], total)
        return store(parts)

    slow, fast = analyze(one_bank, left, x), analyze(many_banks, left, x)
    topics = {one.topic: one for one in slow.advice}
    assert topics["PSUM banks"].num_instructions == 3 and topics["PSUM banks"].source
    assert text_of(topics["PSUM banks"].line) == "nisa.nc_matmul(total, one, two, accumulate=False)"
    assert "PSUM banks" not in {one.topic for one in fast.advice}
    assert "PSUM port" in {one.topic for one in fast.advice} and fast.total_us < slow.total_us


def test_two_groups_in_a_bank_are_advised_against(x):
    def body(left, x):
        one, two = nl.load(left), nl.load(x)
        first = nl.ndarray((128, 64), nl.float32, buffer=nl.psum, address=(0, 0))
        second = nl.ndarray((128, 64), nl.float32, buffer=nl.psum, address=(0, 256))
        nisa.nc_matmul(first, one, two)
        nisa.nc_matmul(second, one, two)
        out = nl.copy(first)
        nisa.tensor_tensor(out, out, nl.copy(second), nl.add)
        return store(out)

    assert "PSUM groups" in {one.topic for one in analyze(body, torch.ones(128, 128), x).advice}


def test_indices_that_choose_elements_are_read(x):
    def body(x):
        tile, index = nl.ndarray((4, 64), x.dtype), nl.ndarray((4, 1), nl.int32)
        nisa.memset(index, 3)
        nisa.dma_copy(tile, x.vector_select(0, index))
        return store(tile)

    hazard = next(hazard for hazard in analyze(jit(body), x).hazards if "memset" in text_of(hazard.first_line))
    assert hazard.kind == "read after write" and "vector_select" in text_of(hazard.second_line)


def waiting(x, after):
    one, two = nl.ndarray(x.shape, x.dtype, nl.sbuf), nl.ndarray(x.shape, x.dtype, nl.sbuf)
    nisa.dma_copy(one, x)
    nisa.dma_copy(two, x)
    first = nisa.activation(one, nl.exp, one, name="first")
    second = nisa.tensor_scalar(two, two, nl.multiply, 3.0, name="second")
    assert isinstance(first, nisa.NkiInstruction)
    if after == "second":
        assert second.depends_on(first) is second
    elif after == "first":
        first.depends_on(second)
    elif after == "each other":
        first.depends_on(second.depends_on(first))
    nisa.tensor_tensor(one, one, two, nl.add)
    return store(one)


@pytest.mark.parametrize("after", ["second", "first"])
def test_an_instruction_waits_for_another_engine(after, x):
    def run(after):
        return {event.record.name: event for event in analyze(jit(waiting), x, after).events}

    apart, ordered = run(None), run(after)
    before = "first" if after == "second" else "second"
    assert apart["first"].start_ns < apart["second"].end_ns and apart["second"].start_ns < apart["first"].end_ns
    assert ordered[after].start_ns >= ordered[before].end_ns
    assert torch.equal(jit(waiting)(x, None), jit(waiting)(x, after))


def test_instructions_that_wait_for_each_other_are_a_race(x):
    (race,) = analyze(jit(waiting), x, "each other").races
    assert race.rule == "schedule"
    assert {'name="first"' in text_of(line) for line in (race.first_line, race.second_line)} == {True, False}


def waits_for_itself(x):
    one = nisa.dma_copy(nl.ndarray(x.shape, x.dtype, nl.sbuf), x)
    one.depends_on(one)


def waits_for_a_tile(x):
    tile = nl.load(x)
    nisa.tensor_copy(tile, tile).depends_on(tile)


def waits_out_of_a_loop(x):
    tile, inner = nl.load(x), []
    nl.fori_loop(0, 2, lambda index: inner.append(nisa.tensor_copy(tile, tile)))
    nisa.tensor_copy(tile, tile).depends_on(inner[-1])


def waits_in_a_loop(x):
    """For the instruction before the loop, and for one of an iteration."""
    tile = nl.load(x)
    first = nisa.tensor_copy(tile, tile)

    def body(index):
        before = nisa.memset(tile, 1.0)
        nisa.tensor_copy(tile, tile).depends_on(before, first)

    nl.fori_loop(0, 2, body)
    return store(tile)


def test_instructions_of_a_loop_wait_in_it(x):
    assert (jit(waits_in_a_loop)(x) == 1).all() and not analyze(jit(waits_in_a_loop), x).races


@pytest.mark.parametrize("kernel", [waits_for_itself, waits_for_a_tile, waits_out_of_a_loop])
def test_waits_that_cannot_be_are_refused(kernel, x):
    with pytest.raises(KernelError) as caught:
        jit(kernel)(x)
    assert caught.value.details["rule"] == "dependency" and "depends_on" in text_of(caught.value.details["line"])
