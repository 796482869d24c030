"""Integers through instructions, against NumPy: bits are kept, and values are not rounded to float32."""

from __future__ import annotations

import numpy as np
import pytest

from optimum_neuron.nki import isa as nisa, jit, language as nl

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32"]


def integers(dtype, seed):
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    return rng.integers(limits.min, limits.max, (32, 24), endpoint=True, dtype=dtype)


def stored(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"])
def test_bits_of_two_tiles(dtype, name):
    x, y = integers(dtype, 0), integers(dtype, 1)
    if "shift" in name:
        y = (y % (8 * y.itemsize)).astype(dtype)

    def body(x, y):
        tile = nl.load(x)
        nisa.tensor_tensor(tile, tile, nl.load(y), getattr(nl, name))
        return stored(tile)

    np.testing.assert_array_equal(jit(body)(x, y), getattr(np, name)(x, y))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits_of_a_tile_and_numbers(dtype):
    x = integers(dtype, 2)

    def body(x):
        shifted, inverted = nl.load(x), nl.load(x)
        nisa.tensor_scalar(shifted, shifted, nl.left_shift, 3, op1=nl.bitwise_xor, operand1=5)
        nisa.tensor_scalar(inverted, inverted, nl.invert, 0)
        return stored(shifted), stored(inverted)

    shifted, inverted = jit(body)(x)
    np.testing.assert_array_equal(shifted, (x << np.array(3, dtype)) ^ np.array(5, dtype))
    np.testing.assert_array_equal(inverted, ~x)


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_predicated_copies_keep_all_bits(dtype):
    x, y = integers(dtype, 3), integers(dtype, 4)
    chosen = np.random.default_rng(5).integers(0, 2, x.shape).astype(np.uint8)

    def body(x, y, chosen):
        tile = nl.ndarray(x.shape, x.dtype)
        nisa.tensor_copy(tile, nl.load(x))
        nisa.tensor_copy_predicated(tile, nl.load(y), nl.load(chosen))
        return stored(tile)

    np.testing.assert_array_equal(jit(body)(x, y, chosen), np.where(chosen, y, x))


@pytest.mark.parametrize("dtype", [">i4", ">u2", ">f4", ">f2", "<i4"])
def test_arrays_of_any_order_of_bytes_and_of_rows(dtype):
    whole = np.arange(32 * 24).reshape(32, 24).astype(dtype)

    def body(x):
        tile, constant = nl.load(x), nl.load(nl.shared_constant(whole))
        nisa.tensor_tensor(tile, tile, constant, nl.add)
        nisa.dma_copy(x, tile)
        return stored(constant)

    x = whole.copy()[::-1]
    np.testing.assert_array_equal(jit(body)(x), whole)
    np.testing.assert_array_equal(x, whole[::-1] + whole)


@pytest.mark.parametrize("value", [2.5, 3.5, -1.6])
def test_constants_become_integers_to_nearest_even(value):
    def body(like):
        tile = nl.ndarray(like.shape, nl.int32)
        nisa.memset(tile, value)
        return stored(tile)

    np.testing.assert_array_equal(jit(body)(np.zeros((4, 4), np.int32)), np.full((4, 4), np.rint(value), np.int32))


def test_range_select_with_its_default():
    x = np.random.default_rng(6).standard_normal((32, 16)).astype(np.float32)
    first, end = np.full((32, 1), 4, np.float32), np.arange(32, dtype=np.float32)[:, None] / 2

    def body(x, first, end):
        tile, highest = nl.load(x), nl.ndarray((32, 1), nl.float32)
        nisa.range_select(
            tile, tile, nl.greater_equal, nl.less, nl.load(first), nl.load(end), reduce_res=highest, range_start=2
        )
        return stored(tile), stored(highest)

    places = np.arange(16) + 2
    wanted = np.where((places >= first) & (places < end), x, np.finfo(np.float32).min)
    values, highest = jit(body)(x, first, end)
    np.testing.assert_array_equal(values, wanted)
    np.testing.assert_array_equal(highest, wanted.max(1, keepdims=True))
