"""Views by names of dimensions and by indices in memory give what NumPy gives, and are replayed bit by bit."""

from __future__ import annotations

import linecache

import numpy as np
import pytest
import torch

from optimum_neuron.errors import KernelError
from optimum_neuron.nki import isa as nisa, jit, language as nl, streams


def store(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def split_and_swapped(x):
    return store(nl.load(x).rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4}))


def joined(x):
    """Joins dimensions of a tensor in HBM, the first one too."""
    return store(x.rearrange(("a", "b", "c"), (("a", "b"), "c")))


def moved_in_hbm(x):
    return store(x.rearrange((("a", "b"), "c"), ("b", "a", "c"), {"b": 32}))


def bytes_of_three_dimensions(x):
    return store(nl.load(x).view(nl.uint8))


def rows(table, index):
    picked = nl.ndarray((index.shape[0], *table.shape[1:]), table.dtype)
    nisa.dma_copy(picked, table.vector_select(0, nl.load(index)))
    return store(picked)


def parts_of_rows(table, index):
    """Indices count from the first row of the view, and free dimensions of the choice are views again."""
    chosen = table[8:40, :, 2:].vector_select(0, nl.load(index))
    part = chosen.slice(2, 1, 5).permute((0, 2, 1)).select(1, 3)
    assert part.is_indirect() and part.shape == (index.shape[0], table.shape[1])
    picked = nl.ndarray(part.shape, table.dtype)
    nisa.dma_copy(picked, part)
    return store(picked)


def skipped_rows(table, index):
    picked = nl.full((index.shape[0], table.shape[1]), -1, table.dtype)
    nisa.dma_copy(picked, table[:50].vector_select(0, nl.load(index)), oob_mode=nisa.oob_mode.skip)
    return store(picked)


def scattered_rows(out, x, index):
    nisa.dma_copy(out.vector_select(0, nl.load(index)), nl.load(x))
    return out


def one_by_index(table, index):
    tile = nl.ndarray(table.shape[1:], table.dtype)
    nisa.dma_copy(tile, table.select(0, nl.load(index)))
    return store(tile)


def columns(x, index):
    tile = nl.ndarray((x.shape[0], 40), x.dtype)
    nisa.tensor_copy(tile, nl.load(x).indirect(nl.load(index), num_elem=40))
    return store(tile)


def all_columns(x, index):
    chosen = nl.load(x).indirect(nl.load(index))
    tile = nl.ndarray(chosen.shape, x.dtype)
    nisa.activation(tile, nl.copy, chosen)
    return store(tile)


def blocks_of_columns(x, index):
    """A loop that is traced once."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for block in nl.affine_range(x.shape[0] // 32):
        rows, tile = nl.ds(block * 32, 32), nl.ndarray((32, x.shape[1]), x.dtype)
        nisa.tensor_copy(tile, nl.load(x[rows]).indirect(nl.load(index[rows]), num_elem=x.shape[1]))
        nisa.dma_copy(out[rows], tile)
    return out


def scattered_columns(x, index):
    tile = nl.zeros((x.shape[0], 64), x.dtype)
    nisa.tensor_copy(tile.indirect(nl.load(index), num_elem=x.shape[1]), nl.load(x))
    return store(tile)


def multiplied_columns(x, y, index):
    """The tensor engine has groups of 32 partitions."""
    total = nl.ndarray((48, y.shape[1]), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(total, nl.load(x).indirect(nl.load(index), num_elem=48), nl.load(y))
    return store(nl.copy(total))


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def index_of(*values):
    return torch.tensor(values, dtype=torch.int32).unsqueeze(1)


def offsets(partitions, columns, limit):
    values = np.random.default_rng(0).permuted(np.tile(np.arange(limit), (partitions, 1)), axis=1)
    return torch.from_numpy(values[:, :columns].astype(np.uint16))


def chosen(index, count, group):
    """Columns of each partition, by the definition."""
    found = np.empty((index.shape[0], count), dtype=np.int64)
    for partition in range(index.shape[0]):
        start = partition // group * group
        for number in range(count):
            found[partition, number] = index[start + number % group, number // group]
    return found


X, WIDE, TABLE = normal(128, 24), normal(64, 100), normal(64, 4, 8)
SMALL, INDEX = offsets(64, 3, 100), index_of(3, 0, 31)
FOUND = chosen(SMALL, 40, 16)
DISTINCT = torch.from_numpy(np.tile(np.arange(63, -1, -1, dtype=np.uint16)[:48].reshape(3, 16).T, (4, 1)).copy())
ORDER = np.tile(np.arange(63, 15, -1), (64, 1))
SCATTERED = np.zeros((64, 64), dtype=np.float32)
np.put_along_axis(SCATTERED, ORDER, WIDE[:, :48].numpy(), axis=1)
ROWS = X.numpy().copy()
ROWS[[5, 2]] = WIDE[:2, :24].numpy()
GATHERED = np.take_along_axis(WIDE.numpy(), chosen(SMALL, 48, 32), axis=1)
CALLS = {
    "split_and_swapped": (split_and_swapped, (X,), X.numpy().reshape(128, 4, 6).transpose(0, 2, 1)),
    "joined": (joined, (TABLE,), TABLE.numpy().reshape(256, 8)),
    "moved_in_hbm": (moved_in_hbm, (X,), X.numpy().reshape(4, 32, 24).transpose(1, 0, 2)),
    "bytes_of_three_dimensions": (bytes_of_three_dimensions, (TABLE,), TABLE.numpy().view(np.uint8)),
    "rows": (rows, (TABLE, INDEX), TABLE.numpy()[[3, 0, 31]]),
    "parts_of_rows": (parts_of_rows, (TABLE, INDEX), TABLE.numpy()[[11, 8, 39], :, 6]),
    "skipped_rows": (skipped_rows, (X, index_of(49, 50)), np.stack([X[49].numpy(), np.full(24, -1, np.float32)])),
    "scattered_rows": (scattered_rows, (X, WIDE[:2, :24].contiguous(), index_of(5, 2)), ROWS),
    "one_by_index": (one_by_index, (TABLE, index_of(9)), TABLE.numpy()[9]),
    "columns": (columns, (WIDE, SMALL), np.take_along_axis(WIDE.numpy(), FOUND, axis=1)),
    "all_columns": (
        all_columns,
        (WIDE[:16].contiguous(), SMALL[:16].contiguous()),
        np.take_along_axis(WIDE[:16].numpy(), chosen(SMALL[:16], 48, 16), axis=1),
    ),
    "blocks_of_columns": (
        blocks_of_columns,
        (normal(64, 40), offsets(64, 3, 40)),
        np.take_along_axis(normal(64, 40).numpy(), chosen(offsets(64, 3, 40), 40, 16), axis=1),
    ),
    "scattered_columns": (scattered_columns, (WIDE[:, :48].contiguous(), DISTINCT), SCATTERED),
    "multiplied_columns": (multiplied_columns, (WIDE, normal(64, 8), SMALL), GATHERED.T @ normal(64, 8).numpy()),
}


def copies(args):
    return [value.clone() for value in args]


@pytest.mark.parametrize("name", CALLS)
def test_views_equal_numpy(name):
    kernel, args, expected = CALLS[name]
    result = jit(kernel)(*copies(args)).numpy()
    if name == "multiplied_columns":
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", CALLS)
def test_streams_carry_the_views(name):
    kernel, args, _ = CALLS[name]
    stream = streams.trace(jit(kernel), args, {}).stream
    read = streams.decode(streams.encode(stream), stream.constants)
    assert read == stream
    inputs = copies(args)
    (result,) = streams.run(read, inputs) or (inputs[0],)
    assert torch.equal(result, jit(kernel)(*copies(args)))


def test_loops_with_columns_by_offsets_are_folded():
    kernel, args, _ = CALLS["blocks_of_columns"]
    (program,) = streams.trace(jit(kernel), args, {}).stream.programs
    assert [node.count for node in program if hasattr(node, "count")] == [2]


def names_differ(x):
    return store(nl.load(x).rearrange(("a", "b"), ("a", "c")))  # here


def sizes_do_not_divide(x):
    return store(nl.load(x).rearrange(("a", ("b", "c")), ("a", "c", "b"), {"b": 5}))  # here


def partitions_move(x):
    return store(nl.load(x).rearrange(("a", "b"), ("b", "a")))  # here


def rows_on_the_chip(x):
    return store(nl.load(x).vector_select(0, nl.load(x)[:, 0:1]))  # here


def rows_of_another_dim(x):
    return store(x.vector_select(1, nl.load(x)[:, 0:1]))  # here


def rows_of_rows(x):
    index = nl.zeros((4, 1), nl.int32)
    return store(x.vector_select(0, index).vector_select(0, index))  # here


def one_of_the_rows(x):
    return store(x.vector_select(0, nl.zeros((4, 1), nl.int32))[1:3])  # here


def row_in_a_broadcast(x):
    rows = x.vector_select(0, nl.zeros((4, 1), nl.int32)).expand_dim(1).broadcast(1, 4)
    return store(rows.select(0, 1))  # here


def rows_that_move(x):
    return store(x.vector_select(0, nl.zeros((4, 1), nl.int32)).permute((1, 0)))  # here


def rows_as_bytes(x):
    return store(x.vector_select(0, nl.zeros((4, 1), nl.int32)).view(nl.uint8))  # here


def one_outside(x):
    return store(x[:8].select(0, nl.full((1, 1), 8, nl.int32)))  # here


def sum_in_columns(x):
    total, tile = nl.ndarray((128, 24), nl.float32, buffer=nl.psum), nl.ones((128, 128), nl.float32)
    nisa.nc_matmul(total.indirect(nl.zeros((128, 2), nl.uint16), num_elem=24), tile, nl.load(x))  # here


def rows_outside(x):
    rows, index = nl.ndarray((4, 24), x.dtype), nl.full((4, 1), 8, nl.int32)
    nisa.dma_copy(rows, x[:8].vector_select(0, index))  # here


def float_offsets(x):
    return store(nl.load(x).indirect(nl.load(x)))  # here


def columns_outside(x):
    nl.copy(nl.load(x).indirect(nl.full((128, 1), 24, nl.uint16), num_elem=4))  # here


def too_many_columns(x):
    nl.copy(nl.load(x).indirect(nl.zeros((128, 2), nl.uint16)))  # here


def columns_by_dma(x):
    out, chosen = nl.ndarray((128, 8), x.dtype, nl.hbm), nl.load(x).indirect(nl.zeros((128, 2), nl.uint16), num_elem=8)
    nisa.dma_copy(out, chosen)  # here


REFUSED = {
    names_differ: "pattern",
    sizes_do_not_divide: "shape",
    partitions_move: "partition",
    rows_on_the_chip: "indirect",
    rows_of_another_dim: "indirect",
    rows_of_rows: "indirect",
    one_of_the_rows: "indirect",
    row_in_a_broadcast: "indirect",
    rows_that_move: "partition",
    rows_as_bytes: "indirect",
    one_outside: "bounds",
    sum_in_columns: "indirect",
    rows_outside: "bounds",
    float_offsets: "indirect",
    columns_outside: "bounds",
    too_many_columns: "shape",
    columns_by_dma: "engine",
}


@pytest.mark.parametrize("kernel", REFUSED)
def test_wrong_views_are_refused_with_the_line(kernel):
    with pytest.raises(KernelError) as caught:
        jit(kernel)(X)
    file, _, number = caught.value.details["line"].rpartition(":")
    assert caught.value.details["rule"] == REFUSED[kernel]
    assert "# here" in linecache.getline(file, int(number))


def test_older_cores_have_no_columns_by_offsets(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    with pytest.raises(KernelError) as caught:
        jit(columns)(WIDE, SMALL)
    assert caught.value.details["rule"] == "generation"
