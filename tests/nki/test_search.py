"""Searches, gathers and positions, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from optimum_neuron.errors import KernelError
from optimum_neuron.nki import isa as nisa, jit, language as nl


def apply(instruction, *inputs, shape, dtype, fill=None, **options):
    """Run one instruction on loaded inputs, and return what it wrote to a tile of a shape."""

    def body(*arrays):
        tiles, result = [nl.load(array) for array in arrays], nl.ndarray(shape, dtype)
        if fill is not None:
            nisa.memset(result, fill)
        instruction(result, *tiles, **options)
        out = nl.ndarray(shape, dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, result)
        return out

    return np.asarray(jit(body)(*inputs))


def details(instruction, *inputs, **options):
    with pytest.raises(KernelError) as excinfo:
        apply(instruction, *inputs, **options)
    return excinfo.value.details


@pytest.fixture
def data():
    return np.random.default_rng(0).standard_normal((128, 40)).astype(np.float32)


def test_eight_largest_and_their_indices(data):
    largest = apply(nisa.max8, data, shape=(128, 8), dtype=nl.float32)
    np.testing.assert_array_equal(largest, -np.sort(-data, axis=1)[:, :8])
    found = apply(nisa.nc_find_index8, data, largest, shape=(128, 8), dtype=nl.uint32)
    np.testing.assert_array_equal(found, np.argsort(-data, axis=1)[:, :8])


def test_value_that_is_not_there_has_all_bits_set(data):
    found = apply(nisa.nc_find_index8, data, np.full((128, 8), 99, np.float32), shape=(128, 8), dtype=nl.uint16)
    assert (found == 65535).all()


def test_matches_are_replaced_one_by_one():
    data = np.array([[1, 2, 2, 3, 2, 4, 5, 6, 7, 8]], np.float32)
    values = np.array([[2, 2, 9, 8, 7, 6, 5, 4]], np.float32)

    def body(data, values):
        tile, indices = nl.load(data), nl.ndarray((1, 8), nl.uint32)
        nisa.nc_match_replace8(tile, tile, nl.load(values), imm=-1.0, dst_idx=indices)
        outs = nl.ndarray(data.shape, nl.float32, nl.shared_hbm), nl.ndarray((1, 8), nl.uint32, nl.shared_hbm)
        nisa.dma_copy(outs[0], tile)
        nisa.dma_copy(outs[1], indices)
        return outs

    replaced, indices = jit(body)(data, values)
    np.testing.assert_array_equal(replaced, [[1, -1, -1, 3, 2, -1, -1, -1, -1, -1]])
    np.testing.assert_array_equal(indices, [[2, 1, 2**32 - 1, 9, 8, 7, 6, 5]])


def test_equal_values_have_indices_of_their_own():
    """The published example of a replacement; a search gives the occurrences in their order."""
    data = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    values = np.array([[3, 8, 8, 8, 8, 8, 8, 8]], np.float32)

    def replaced(data, values):
        tile, indices = nl.load(data), nl.ndarray((1, 8), nl.uint32)
        nisa.nc_match_replace8(tile, tile, nl.load(values), imm=0.0, dst_idx=indices)
        out = nl.ndarray((1, 8), nl.uint32, nl.shared_hbm)
        nisa.dma_copy(out, indices)
        return out

    np.testing.assert_array_equal(jit(replaced)(data, values), [[2, 10, 9, 8, 7, 6, 5, 4]])
    found = apply(nisa.nc_find_index8, data, values, shape=(1, 8), dtype=nl.uint32)
    np.testing.assert_array_equal(found, [[2, 4, 5, 6, 7, 8, 9, 10]])


@pytest.mark.parametrize("elements", [7, 16385])
def test_sizes_of_searches(elements):
    found = details(nisa.max8, np.ones((1, elements), np.float32), shape=(1, 8), dtype=nl.float32)
    assert found["rule"] == "tile_size" and found["value"] == elements


def test_topk_selects_from_sixteen_partitions():
    n, k = 42, 5
    snake = torch.randn(32, 3, generator=torch.Generator().manual_seed(0)).bfloat16()

    def body(source):
        values, indices = nl.ndarray((32, k), nl.bfloat16), nl.ndarray((32, k), nl.uint32)
        nisa.topk(values, indices, nl.load(source), n)
        outs = [nl.zeros((32, 1), dtype, nl.shared_hbm) for dtype in (nl.bfloat16, nl.uint32)]
        for out, tile in zip(outs, (values, indices), strict=True):
            for group in range(2):
                nisa.dma_copy(out[group * 16 : group * 16 + k], tile[group * 16 : group * 16 + k, :1])
        return outs

    values, indices = jit(body)(snake)
    for group in range(2):
        flat = snake[group * 16 : group * 16 + 16].T.reshape(-1)[:n].float()
        best = flat.topk(k)
        assert torch.equal(values[group * 16 : group * 16 + k, 0].float(), best.values.flip(0))
        assert torch.equal(indices[group * 16 : group * 16 + k, 0].long(), best.indices.flip(0))


def test_topk_of_more_than_there_are():
    def body(source):
        nisa.topk(nl.ndarray((16, 9), nl.bfloat16), nl.ndarray((16, 9), nl.uint32), nl.load(source), 8)

    with pytest.raises(KernelError) as excinfo:
        jit(body)(torch.ones(16, 4).bfloat16())
    assert excinfo.value.details["rule"] == "tile_size"


def test_gather_within_partitions(data):
    indices = np.random.default_rng(1).integers(0, 40, (128, 12)).astype(np.uint32)
    result = apply(nisa.nc_n_gather, data, indices, shape=(128, 12), dtype=nl.float32)
    np.testing.assert_array_equal(result, np.take_along_axis(data, indices.astype(np.int64), axis=1))
    assert details(nisa.nc_n_gather, data, indices + 40, shape=(128, 12), dtype=nl.float32)["rule"] == "bounds"
    assert details(nisa.nc_n_gather, data, indices, shape=(128, 6), dtype=nl.float32)["rule"] == "shape"


@pytest.mark.parametrize("dtype", ["uint32", "uint16", "float8_e4m3fn", "bfloat16"])
def test_moves_keep_bits_of_every_dtype(dtype):
    bits = torch.arange(32 * 8, dtype=torch.uint8).reshape(32, 8)
    source = bits.view(getattr(torch, dtype))

    def body(source):
        tile, turned = nl.load(source), nl.ndarray(source.shape, source.dtype)
        index = nl.zeros(tile.shape, nl.uint32)
        nisa.iota(index, [[-1, tile.shape[1]]], offset=tile.shape[1] - 1)
        nisa.nc_n_gather(turned, tile, index)
        nisa.nc_n_gather(tile, turned, index)
        nisa.nc_stream_shuffle(turned, tile, list(range(31, -1, -1)))
        out = nl.ndarray(source.shape, source.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, turned)
        return out

    assert torch.equal(jit(body)(source).view(torch.uint8), bits.flip(0))


@pytest.mark.parametrize(("per_index", "valid"), [(1, None), (4, 30)])
def test_gather_from_sixteen_partitions(data, per_index, valid):
    index = np.random.default_rng(2).integers(0, 36, (128, 2)).astype(np.uint16)
    count = 32 if valid is None else valid
    options = {"num_elem_per_idx": per_index, "num_valid_indices": valid}
    result = apply(nisa.local_gather, data, index, shape=(128, count * per_index), dtype=nl.float32, **options)
    for start in range(0, 128, 16):
        places = index[start : start + 16].flatten(order="F")[:count].astype(np.int64)
        wanted = (places[:, None] + np.arange(per_index)).reshape(-1)
        np.testing.assert_array_equal(result[start : start + 16], data[start : start + 16, wanted])


def test_gather_with_indices_of_another_dtype(data):
    found = details(nisa.local_gather, data, np.zeros((128, 2), np.int32), shape=(128, 32), dtype=nl.float32)
    assert found["rule"] == "dtype" and found["operand"] == "index"


def test_shuffle_of_partitions(data):
    mask = [*range(31, 0, -1), 255]
    result = apply(nisa.nc_stream_shuffle, data, shape=(128, 40), dtype=nl.float32, fill=7, shuffle_mask=mask)
    wanted = data.reshape(4, 32, 40)[:, ::-1].copy()
    wanted[:, 31] = 7
    np.testing.assert_array_equal(result, wanted.reshape(128, 40))
    found = details(nisa.nc_stream_shuffle, data, shape=(128, 40), dtype=nl.float32, shuffle_mask=[32] * 32)
    assert found["operand"] == "shuffle_mask"


def test_indices_of_elements_that_are_not_zero():
    data = np.ones((32, 8), np.float32)
    data[0], data[16] = [0, 1, 1, 0, 0, 1, 0, 0], 0
    options = {"index_offset": 16, "padding_val": -1}
    result = apply(nisa.nonzero_with_count, data, shape=(32, 9), dtype=nl.int32, fill=5, **options)
    np.testing.assert_array_equal(result[0], [17, 18, 21, -1, -1, -1, -1, -1, 3])
    np.testing.assert_array_equal(result[16], [-1] * 8 + [0])
    assert (np.delete(result, [0, 16], axis=0) == 5).all()
    assert details(nisa.nonzero_with_count, data, shape=(32, 8), dtype=nl.int32)["rule"] == "shape"


def test_bounds_of_segments():
    ids = np.array([[0, 1, 1, 2, 3, 3, 3, 0]], np.int32)
    result = apply(nisa.sequence_bounds, ids, shape=(1, 2, 8), dtype=nl.int32)
    np.testing.assert_array_equal(result, [[[8, 1, 1, 3, 4, 4, 4, 8], [-1, 3, 3, 4, 7, 7, 7, -1]]])
    assert details(nisa.sequence_bounds, np.ones((2, 8), np.int32), shape=(1, 2, 8), dtype=nl.int32)["rule"] == "shape"
