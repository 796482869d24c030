"""How numbers become elements, and the arithmetic of instructions where it is not plain float32."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from optimum_neuron.nki import isa as nisa, jit, language as nl, launch


def stored(values, dtype):
    """Values as a tile of a dtype has them."""

    @jit
    def kernel(x):
        out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x, dtype=dtype))
        return out

    return kernel(torch.tensor([values], dtype=torch.float32))[0].tolist()


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        (nl.int8, [0.5, 1.5, 2.5, -300.0, 300.0, math.nan], [0, 2, 2, -128, 127, 0]),
        (nl.uint8, [-1.0, 254.5, 1e9], [0, 254, 255]),
        (nl.uint32, [4294967040.0, -1.0], [4294967040.0, 0]),
        (nl.bfloat16, [1.00390625, 1.01171875], [1.0, 1.015625]),
        (nl.tfloat32, [1 + 2**-11, 1 + 3 * 2**-11], [1.0, 1 + 2**-9]),
        (nl.float8_e4m3, [17.0, 19.0, 240.0, 260.0, -260.0, 2**-9], [16.0, 20.0, 240.0, math.inf, -math.inf, 2**-9]),
        (nl.float8_e3m4, [15.5, 16.5, 0.25], [15.5, math.inf, 0.25]),
        (nl.float8_e5m2, [57344.0, 1.1], [57344.0, 1.0]),
    ],
)
def test_numbers_are_rounded_to_dtypes(dtype, values, expected, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    assert stored(values, dtype) == expected


def test_precise_off_keeps_floats_in_float32(monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    assert stored([1.00390625], nl.bfloat16) == [1.00390625]


def computed(body, *values):
    @jit
    def kernel(*tensors):
        result = body(*map(nl.load, tensors))
        out = nl.ndarray(result.shape, result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    return kernel(*values)


@pytest.mark.parametrize("width", [1, 2])
def test_a_tile_of_one_column_is_a_vector_of_one_instruction(width):
    def kernel(x, y):
        out, total = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.add(nl.load(x), nl.load(y))
        nl.store(out, total)
        return out

    x, y = torch.arange(16.0).reshape(8, 2), torch.arange(8.0 * width).reshape(8, width)
    result, stream = launch(jit(kernel), (x, y), {}, record=True)
    assert torch.equal(result, x + y)
    assert stream[2].opcode == {1: "tensor_scalar", 2: "tensor_tensor"}[width]


def test_cycles_of_short_floats_are_the_published_ones():
    """N / 2 for sums, N for products, 2 N for scans, 8 N for reciprocals; N / 2 for two tiles of the 16-bit mode."""

    def kernel(x):
        tile, total = nl.load(x), nl.ndarray((8, 1), x.dtype)
        nisa.tensor_reduce(total, nl.add, tile, 1)
        nisa.tensor_reduce(total, nl.multiply, tile, 1)
        nisa.tensor_tensor_scan(tile, tile, tile, 0.0, nl.multiply, nl.add)
        nisa.reciprocal(tile, tile)
        nisa.tensor_tensor(tile, tile, tile, nl.add)
        nl.store(x, tile)
        return x

    _, stream = launch(jit(kernel), (torch.ones(8, 512, dtype=torch.bfloat16),), {}, record=True)
    assert [record.cycles for record in stream[1:-1]] == [256, 512, 1024, 4096, 256]


def test_sine_outside_of_its_range_goes_on_as_documented():
    result = computed(nl.sin, torch.tensor([[1.0, 9.0, -9.0]]))[0]
    torch.testing.assert_close(result, torch.tensor([math.sin(1.0), 27.65, -27.65]), atol=5e-3, rtol=0)


def test_sums_of_32_bit_integers_are_exact_on_gpsimd_only():
    numbers = torch.tensor([[2**24 + 1, 7]], dtype=torch.int32)

    def add(engine):
        def body(x):
            result = nl.ndarray(x.shape, nl.int32)
            nisa.tensor_tensor(result, x, x, nl.add, engine=engine)
            return result

        return computed(body, numbers)[0].tolist()

    assert add(nisa.engine.unknown) == [2**25 + 2, 14]
    assert add(nisa.engine.vector) == [2**25, 14]


def test_bits_and_shifts():
    numbers = torch.tensor([[12, 10]], dtype=torch.int32)

    def body(x):
        result = nl.ndarray(x.shape, nl.int32)
        nisa.tensor_scalar(result, x, nl.bitwise_and, 6, op1=nl.left_shift, operand1=2)
        return result

    assert computed(body, numbers)[0].tolist() == [16, 8]


def test_accumulators_continue_over_instructions():
    def body(x):
        junk, total = nl.ndarray(x.shape, nl.float32), nl.ndarray((1, 1), nl.float32)
        options = {"reduce_op": nl.add, "reduce_res": total}
        nisa.activation(junk, nl.copy, x, reduce_cmd=nisa.reduce_cmd.reset_reduce, **options)
        nisa.activation(junk, nl.copy, x, scale=10.0, reduce_cmd=nisa.reduce_cmd.reduce, **options)
        return total

    assert computed(body, torch.tensor([[1.0, 2.0]])).item() == 33.0


@pytest.mark.parametrize(("accumulate", "expected"), [(None, 8.0), (True, 8.0), (False, 4.0)])
def test_matmul_adds_to_what_was_written(accumulate, expected):
    def body(x):
        total = nl.ndarray((1, 1), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(total, x, x)
        nisa.nc_matmul(total, x, x, accumulate=accumulate)
        return nl.copy(total)

    assert computed(body, torch.ones(4, 1)).item() == expected


def test_double_row_contracts_two_rows_of_a_partition():
    def body(x):
        total = nl.ndarray((3, 5), nl.float32, buffer=nl.psum)
        tile = nl.copy(x, dtype=nl.float8_e4m3)
        nisa.nc_matmul(total, tile[:, :, :3], tile[:, :, 3:], perf_mode=nisa.matmul_perf_mode.double_row)
        return nl.copy(total)

    x = torch.randint(-4, 4, (128, 2, 8)).float()
    flat = x.reshape(256, 8)
    torch.testing.assert_close(computed(body, x), flat[:, :3].T @ flat[:, 3:])


def test_views_share_memory():
    def body(x):
        turned = x.reshape((2, 3, 4)).permute((0, 2, 1))
        assert (turned.shape, turned.strides) == ((2, 4, 3), (12, 1, 4))
        assert x.flatten_dims(1, 2).get_pattern() == [[12, 2], [1, 12]]
        nisa.memset(turned[:, 1], 0)
        return x

    x = torch.ones(2, 3, 4)
    expected = x.clone()
    expected[:, :, 1] = 0
    torch.testing.assert_close(computed(body, x), expected)


def test_bytes_are_read_as_another_dtype():
    x = torch.tensor([[1.0, -2.0]])
    assert computed(lambda tile: tile.view(nl.int32), x).tolist() == x.view(torch.int32).tolist()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("bfloat16", "float32", "float32"),
        ("float16", "bfloat16", "float32"),
        ("float8_e4m3", "bfloat16", "bfloat16"),
        ("float8_e4m3", "float8_e5m2", "bfloat16"),
        ("int16", "int32", "int32"),
        ("int32", "float16", "float16"),
        ("int32", "uint32", "float32"),
        ("int8", "uint16", "int32"),
        ("int8", "uint8", "int16"),
        ("tfloat32", "float32", "float32"),
        ("uint16", "int32", "int32"),
    ],
)
def test_two_dtypes_become_one_that_has_the_numbers_of_both(first, second, expected):
    """The examples of the published table of promotions."""

    @jit
    def kernel(x):
        for one, two in ((first, second), (second, first)):
            assert nl.add(nl.load(x, dtype=one), nl.load(x, dtype=two)).dtype == expected
        return x

    kernel(torch.ones(4, 4))


def test_arrays_of_ml_dtypes_go_in_and_out():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.linspace(-240, 240, 64, dtype=np.float32).reshape(4, 16).astype(ml_dtypes.float8_e4m3)

    @jit(platform_target="trn2")
    def kernel(x, y):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nisa.tensor_scalar(tile, tile, nl.multiply, 0.5)
        nl.store(out, tile)
        nl.store(y, tile)
        return out

    y = np.zeros_like(x)
    result = kernel(x, y)
    expected = (x.astype(np.float32) * 0.5).astype(ml_dtypes.float8_e4m3)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result.astype(np.float32), expected.astype(np.float32))
    np.testing.assert_array_equal(y.astype(np.float32), expected.astype(np.float32))
