"""Memory, time, roofline and advice of kernels, from their streams."""

from __future__ import annotations

import itertools
import json
import warnings

import pytest
import torch

from optimum_neuron.errors import ConfigError
from optimum_neuron.hardware import resolve_target
from optimum_neuron.nki import analyze, isa as nisa, jit, language as nl, launch
from optimum_neuron.nki.core import Access
from optimum_neuron.nki.timeline import box_of, overlap


def store(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def matmul(left_T, right):
    total = nl.ndarray((left_T.shape[1], right.shape[1]), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(total, nl.load(left_T), nl.load(right))
    return store(nl.copy(total))


@pytest.fixture
def x():
    return torch.randn(128, 512, generator=torch.Generator().manual_seed(0))


def test_times_of_a_chain_add_up(x):
    def body(x):
        tile = nl.load(x)
        nisa.activation(tile, nl.exp, tile)
        return store(tile)

    analysis = analyze(body, x)
    _, (load, activation, copy) = launch(jit(body), (x,), {}, record=True)
    core, timing = (target := resolve_target("trn3").value).core, target.timing
    late = timing.scalar_dependent_cycles - timing.min_interval_cycles
    scalar_ns = (timing.dependent_instruction_cycles + activation.cycles + late) / core.scalar.clock_ghz
    assert analysis.total_us == pytest.approx((load.cycles + scalar_ns + copy.cycles) / 1e3)
    assert [event.has_waited for event in analysis.events] == [False, True, True]
    torch.testing.assert_close(analysis.result, x.exp())


def test_transfers_overlap_and_engines_run_side_by_side(x):
    def body(x, y):
        tiles = [nl.load(x), nl.load(y)]
        for _ in range(4):
            nisa.activation(tiles[0], nl.tanh, tiles[0])
        nisa.tensor_scalar(tiles[1], tiles[1], nl.add, 1.0)
        return [store(tile) for tile in tiles]

    first, second, *_, activation, addition = analyze(body, x, x.clone()).events[:-2]
    assert second.start_ns == first.busy_ns < first.end_ns
    assert addition.start_ns < activation.end_ns


def test_load_does_not_wait_for_the_store_before(x):
    def body(x, y):
        tiles = []
        for source in (x, y):
            tile = nl.load(source)
            nisa.activation(tile, nl.exp, tile)
            tiles.append(store(tile))
        return tiles

    _, _, first_store, second_load, *_ = analyze(body, x, x.clone()).events
    assert second_load.start_ns < first_store.start_ns


def test_live_tiles_of_the_schedule_fit():
    """Later tiles wait for room, so the schedule needs no more memory than there is."""

    def body(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for row in range(20):
            rows, wide = slice(row * 128, row * 128 + 128), nl.ndarray((128, 30000), nl.float32)
            nisa.dma_copy(wide[:, :64], x[rows])
            nisa.activation(wide[:, :64], nl.exp, wide[:, :64])
            nisa.dma_copy(out[rows], wide[:, :64])
        return out

    analysis = analyze(body, torch.ones(2560, 64))
    lives = {}
    for event in analysis.events:
        for access in (*event.record.reads, *event.record.writes):
            if access.buffer == "sbuf":
                start, _ = lives.get(access.storage, (event.start_ns, 0))
                lives[access.storage] = start, event.end_ns
    capacity = analysis.memory[0].capacity
    most = max(sum(s <= time < e for s, e in lives.values()) for time, _ in lives.values())
    assert most == capacity // 120000 == 2 and analysis.memory[0].peak == 120000


def test_line_that_overflows(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")

    def body():
        tiles = []
        for _ in range(5):
            tiles.append(nl.zeros((128, 12000), nl.float32))
        return [store(tile[:, :1]) for tile in tiles]

    sbuf, psum = analyze(body).memory
    assert (sbuf.capacity, sbuf.peak, psum.peak) == (192 * 1024, 5 * 48000, 0)
    assert sbuf.overflow_line.startswith(__file__) and len(sbuf.peak_tiles) == 5
    assert sbuf.levels[:2] == ((0, 48000), (1, 96000))
    assert analyze(lambda: store(nl.zeros((128, 12000), nl.float32))).memory[0].overflow_line is None


def test_reads_of_what_nothing_wrote_are_listed():
    def body():
        tile = nl.ndarray((128, 4), nl.float32, name="half")
        nisa.memset(tile[:, :2], 1.0)
        return store(tile)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (read,) = analyze(body).unwritten
    assert (read.tensor, read.num_elements) == ("half", 256) and read.line.startswith(__file__)


def test_roofline_of_a_matmul(x):
    analysis = analyze(matmul, x[:, :128].bfloat16(), x.bfloat16())
    roofline = analysis.roofline
    assert roofline.matmul_flop == 2 * 128 * 128 * 512
    assert roofline.hbm_bytes == 128 * 128 * 2 + 128 * 512 * 2 + 128 * 512 * 4
    assert roofline.matmul_us == pytest.approx(roofline.matmul_flop / 79e6)
    assert 0 < analysis.roofline_share < 1
    assert analysis.bound.value == "waiting" and "busy" in analysis.bound.reason


def test_engine_that_bounds(x):
    def body(x):
        tiles = [nl.load(x), nl.load(x)]
        for turn in range(200):
            nisa.activation(tiles[turn % 2], nl.tanh, tiles[turn % 2])
        return store(tiles[0])

    assert analyze(body, x).bound.value == "scalar"


def test_dependent_instructions_of_the_scalar_engine_take_as_long_as_published(monkeypatch):
    """The performance guide measures 222 ns for one on NeuronCore-v3."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")

    def body(x):
        tile = nl.load(x)
        for _ in range(20):
            nisa.activation(tile, nl.exp, tile)
        return store(tile)

    starts = [event.start_ns for event in analyze(body, torch.zeros(128, 1)).events[1:-1]]
    assert [after - before for before, after in itertools.pairwise(starts)] == pytest.approx([222] * 19, rel=0.01)


def test_accumulation_in_psum_does_not_wait(x):
    def body(x):
        tile, total = nl.load(x), nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
        for _ in range(20):
            nisa.nc_matmul(total, tile[:, :128], tile)
        return store(nl.copy(total))

    matmuls = [event for event in analyze(body, x.bfloat16()).events if event.record.engine == "tensor"]
    assert matmuls[-1].start_ns - matmuls[0].start_ns == pytest.approx(19 * matmuls[0].busy_ns)


def narrow(x):
    tile = nl.load(x)
    nisa.activation(tile[:32], nl.exp, tile[:32])
    return store(tile)


def short(x):
    tile = nl.load(x)
    nisa.activation(tile[:, :8], nl.exp, tile[:, :8])
    return store(tile)


def strided(x):
    tile = nl.load(x)
    columns = tile.reshape((128, 64, 8))[:, :, 0]
    nisa.activation(columns, nl.exp, columns)
    return store(tile)


@pytest.mark.parametrize(
    ("topic", "body", "sizes"),
    [
        ("moving columns", matmul, [(128, 128), (128, 32)]),
        ("contracted rows", matmul, [(64, 128), (64, 512)]),
        ("stationary columns", matmul, [(128, 64), (128, 512)]),
        ("float32 matmul", matmul, [(128, 128), (128, 512)]),
        ("DMA size", matmul, [(128, 128), (128, 256)]),
        ("partitions", narrow, [(128, 512)]),
        ("short instructions", short, [(128, 512)]),
        ("strides", strided, [(128, 512)]),
    ],
)
def test_advice(topic, body, sizes):
    analysis = analyze(body, *(torch.ones(size) for size in sizes))
    advice = {one.topic: one for one in analysis.advice}
    assert advice[topic].num_instructions and advice[topic].busy_us > 0
    assert advice[topic].source.startswith("Neuron docs") and advice[topic].line.startswith(__file__)
    others = {"moving columns", "contracted rows", "stationary columns", "partitions", "short instructions", "strides"}
    related = {"stationary columns": {"partitions"}, "moving columns": {"short instructions"}}.get(topic, set())
    assert not (others - {topic} - related) & set(advice)


def test_no_advice_for_a_good_kernel():
    def body(x):
        tile = nl.load(x)
        nisa.activation(tile, nl.exp, tile)
        return store(tile)

    assert not analyze(body, torch.ones(128, 2048)).advice


def test_boxes_overlap_where_elements_do():
    tensor = torch.arange(6 * 8)
    views = [
        tensor.as_strided(size, stride, offset)
        for size, stride in [
            ((3, 4), (8, 1)),
            ((6, 2), (8, 1)),
            ((2, 3), (16, 2)),
            ((10,), (1,)),
            ((2, 2, 2), (8, 4, 1)),
        ]
        for offset in (0, 2, 4, 9, 13)
        if offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) < 48
    ]
    exact = 0
    for one, other in itertools.product(views, repeat=2):
        boxes = [
            box_of(Access(0, "", "hbm", "int32", v.storage_offset(), tuple(v.shape), v.stride(), 8, 32, ""))
            for v in (one, other)
        ]
        touch = bool(set(one.flatten().tolist()) & set(other.flatten().tolist()))
        assert overlap(*boxes) or not touch
        exact += overlap(*boxes) == touch
    assert exact / len(views) ** 2 > 0.8


def test_trace_and_plain_data(x):
    analysis = analyze(matmul, x[:, :128], x)
    data, trace = json.loads(json.dumps(analysis.to_dict())), json.loads(json.dumps(analysis.trace()))
    assert data["num_instructions"] == len(analysis.events) == sum(e["ph"] == "X" for e in trace["traceEvents"])
    assert sum(data["busy_us"].values()) == pytest.approx(sum(e.get("dur", 0) for e in trace["traceEvents"]))


def test_kernel_without_instructions(x):
    with pytest.raises(ConfigError):
        analyze(lambda x: x, x)


def test_gather_of_rows_moves_whole_rows(x):
    """Indices choose rows, and each row is one run of bytes, as in a copy."""

    def body(x, indices):
        gathered, copied, index = nl.ndarray((128, 512), x.dtype), nl.ndarray((128, 512), x.dtype), nl.load(indices)
        nisa.dma_copy(gathered, x.ap([[512, 128], [1, 512]], vector_offset=index, indirect_dim=0))
        nisa.dma_copy(copied, x)
        return store(gathered), store(copied)

    _, gather, copy, *_ = analyze(body, x, torch.arange(128, dtype=torch.int32).flip(0)[:, None]).events
    assert gather.record.reads[0].is_indirect and gather.record.cycles == copy.record.cycles
