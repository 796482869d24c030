"""Shapes of scales, and numbers that a scheme cannot have."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.weights import Layout, Scheme, dequantize
from optimum_neuron.weights.layouts import Matrix, read_compressed, read_gptq
from tests.weights import plain_readers


@pytest.mark.parametrize(
    ("method", "block", "shape", "expected"),
    [
        ("compressed-tensors", (0, 0), (), True),
        ("compressed-tensors", (0, 0), (1,), True),
        ("compressed-tensors", (0, 0), (20, 1), False),
        ("compressed-tensors", (1, 0), (20,), True),
        ("compressed-tensors", (1, 0), (19,), False),
        ("compressed-tensors", (1, 0), (), False),
        ("compressed-tensors", (1, 0), (20, 1, 1), False),
        ("compressed-tensors", (1, 32), (20, 2), True),
        ("compressed-tensors", (1, 32), (20, 1), False),
        ("compressed-tensors", (16, 32), (2, 2), True),
        ("compressed-tensors", (16, 32), (), False),
        ("fp8", (16, 32), (), True),
        ("fp8", (16, 32), (20, 1), False),
        ("fp8", (0, 0), (20, 1), True),
        ("fp8", (0, 0), (20,), True),
        ("fp8", (0, 0), (20, 2), False),
    ],
)
def test_shapes_of_scales(method, block, shape, expected):
    """Of a matrix of 20 outputs and 48 inputs."""
    assert Layout(method=method, block=block).has_scales(shape, 20, 48) == expected


def test_all_outputs_may_share_scales_of_groups():
    parts = {"weight": torch.randint(-128, 128, (4, 64), dtype=torch.int8), "weight_scale": torch.tensor([[0.5, 2.0]])}
    layout = Layout(method="compressed-tensors", block=(0, 32))
    weight = read_compressed(parts.get, layout).dequantized()
    assert torch.equal(weight, parts["weight"].float() * torch.tensor([0.5, 2.0]).repeat_interleave(32))


def matrix(numbers, zero, **options):
    scale = torch.ones(2, 1)
    return Matrix(numbers_OI=numbers.to(torch.uint8), scale_OG=scale, zero_OG=torch.full((2, 1), zero), **options)


def test_only_the_numbers_of_a_scheme_are_taken_as_they_are():
    small, large = torch.arange(64).reshape(2, 32) % 16, torch.arange(64).reshape(2, 32)
    int4, with_zeros, int8, fp8 = (Scheme.parse(name) for name in ("int4", "int4-g32-zp", "int8", "fp8"))
    assert matrix(small, 8).parts(int4) is not None and matrix(small, 7).parts(int4) is None
    assert matrix(small, 7).parts(with_zeros) is not None and matrix(small, 16).parts(with_zeros) is None
    assert matrix(small, -1).parts(with_zeros) is None and matrix(small + 1, 8).parts(int4) is None
    assert matrix(small, 15).parts(with_zeros) is not None and matrix(small, 0).parts(with_zeros) is not None
    assert matrix(large, 8).parts(int4) is None and matrix(large, 8).parts(with_zeros) is None
    parts = matrix(large, 128).parts(int8)
    assert torch.equal(parts["values"], (large - 128).to(torch.int8)) and matrix(large, 127).parts(int8) is None
    assert matrix(large, 128).parts(fp8) is None
    assert matrix(small, 8, group_I=torch.zeros(32, dtype=torch.long)).parts(int4) is None
    assert torch.equal(matrix(large, 3).dequantized(), large.float() - 3)


def test_numbers_beyond_those_of_the_chip_are_halved():
    """Its e4m3 ends at 240: a group with 256 or more gets half the numbers and twice the scale."""
    numbers = torch.tensor([[240.0, -240, 3, 1] * 8, [256.0, -448, 3, 1] * 8]).to(torch.float8_e4m3fn)
    fp8, int8 = Scheme.parse("fp8"), Scheme.parse("int8")
    whole = Matrix(numbers_OI=numbers, scale_OG=torch.tensor([[0.5], [0.25]]))
    parts = whole.parts(fp8)
    assert torch.equal(parts["values"].float(), numbers.float() / torch.tensor([[1.0], [2.0]]))
    assert parts["scale"].tolist() == [[0.5], [0.5]] and whole.parts(int8) is None
    assert Matrix(numbers_OI=numbers, scale_OG=torch.ones(2, 1), zero_OG=torch.ones(2, 1)).parts(fp8) is None


@pytest.mark.parametrize("zero", [None, 0.0, 3.0])
def test_float8_may_have_zero_points(zero):
    parts = {"weight": torch.tensor([[240.0, -3, 2, 1] * 8]).to(torch.float8_e4m3fn), "weight_scale": torch.ones(1, 1)}
    parts |= {} if zero is None else {"weight_zero_point": torch.full((1, 1), zero).to(torch.float8_e4m3fn)}
    read = read_compressed(parts.get, Layout(method="compressed-tensors", block=(1, 0)))
    plain = {name: part.float() for name, part in parts.items()}
    assert torch.equal(read.dequantized(), plain_readers.compressed_unpacked(plain, (1, 0)))
    assert (read.parts(Scheme.parse("fp8")) is None) == bool(zero)


@pytest.mark.parametrize(("num_bits", "outputs"), [(4, 3), (8, 3), (8, 1)])
def test_unpacked_integers_of_any_width(num_bits, outputs):
    """Zero points of few outputs are not packed, whatever their shape."""
    half, generator = 1 << (num_bits - 1), torch.Generator().manual_seed(0)
    parts = {"weight": torch.randint(-half, half, (outputs, 32), dtype=torch.int8, generator=generator)}
    parts |= {"weight_scale": torch.ones(1, 1), "weight_zero_point": torch.full((1, 1), 3 - half, dtype=torch.int8)}
    layout = Layout(method="compressed-tensors", num_bits=num_bits, is_symmetric=False)
    for dtype in (torch.int8, torch.int32):
        given = parts | {"weight_zero_point": parts["weight_zero_point"].to(dtype)}
        expected = plain_readers.compressed_unpacked(parts, (0, 0))
        assert torch.equal(read_compressed(given.get, layout).dequantized(), expected)


def test_a_packed_matrix_may_have_zero_points_that_are_not():
    """As the first versions of compressed-tensors wrote them; -1 in every place of weight_g_idx is no order."""
    generator = torch.Generator().manual_seed(0)
    parts = {
        "weight_packed": torch.randint(-(2**31), 2**31, (1, 8), generator=generator).int(),
        "weight_scale": torch.tensor([[0.5, 2.0]]),
        "weight_shape": torch.tensor([1, 64]),
        "weight_zero_point": torch.tensor([[0x12345672, 0x1234567D]], dtype=torch.int64).int(),
    }
    layout = Layout(method="compressed-tensors", num_bits=4, block=(1, 32), is_symmetric=False)
    expected = plain_readers.compressed_packed(parts, (1, 32), 4)
    for given in (
        parts,
        parts | {"weight_zero_point": torch.tensor([[2 - 8, 13 - 8]], dtype=torch.int8)},
        parts | {"weight_g_idx": torch.full((64,), -1)},
        parts | {"weight_g_idx": torch.arange(64) // 32},
    ):
        read = read_compressed(given.get, layout)
        assert torch.equal(read.dequantized(), expected) and read.parts(Scheme.parse("int4-g32-zp")) is not None
    parts["weight_g_idx"] = torch.zeros(64, dtype=torch.int32)
    expected = plain_readers.compressed_packed(parts, (1, 32), 4)
    assert torch.equal(read_compressed(parts.get, layout).dequantized(), expected)


def test_groups_of_one_scale_are_of_no_account():
    """A single scale is that of all inputs, also where the settings have a size of groups; so is a single group."""
    generator = torch.Generator().manual_seed(0)
    parts = {
        "qweight": torch.randint(-(2**31), 2**31, (8, 16), generator=generator).int(),
        "qzeros": torch.full((1, 2), -0x77777778, dtype=torch.int32),  # 0x88888888
        "scales": torch.rand(1, 16, generator=generator).half() + 0.5,
        "g_idx": torch.zeros(64).int(),
    }
    for size in (0, 32):
        layout = Layout(method="gptq", num_bits=4, block=(1, size), is_symmetric=False)
        read = read_gptq(parts.get, layout)
        torch.testing.assert_close(read.dequantized(), plain_readers.gptq(parts, size, 4, version=2))
        values = read.parts(Scheme.parse("int4-g64"))
        torch.testing.assert_close(dequantize(values["values"], values["scale"]), read.dequantized())


def test_groups_of_a_scheme_divide_those_of_the_files():
    numbers, scale = torch.full((2, 96), 3, dtype=torch.uint8), torch.rand(2, 2).half().float()
    wide = Matrix(numbers_OI=numbers, scale_OG=scale, zero_OG=torch.full((2, 2), 8), group_size=64)
    parts = wide.parts(Scheme.parse("int4-g32"))
    assert torch.equal(parts["scale"], scale[:, [0, 0, 1]].half())
    assert torch.equal(dequantize(parts["values"], parts["scale"]), wide.dequantized())
    assert wide.parts(Scheme.parse("int4-g96")) is None


def test_gptq_groups_may_be_named_by_their_inputs_alone():
    """As after sorting by activations with a group size of -1 in the settings."""
    generator = torch.Generator().manual_seed(0)
    parts = {
        "qweight": torch.randint(-(2**31), 2**31, (4, 16), generator=generator).int(),
        "qzeros": torch.randint(-(2**31), 2**31, (2, 2), generator=generator).int(),
        "scales": torch.rand(2, 16, generator=generator) + 0.1,
        "g_idx": torch.randint(2, (32,), generator=generator).int(),
    }
    layout = Layout(method="gptq", num_bits=4, is_symmetric=False, zero_offset=1)
    weight = read_gptq(parts.get, layout).dequantized()
    torch.testing.assert_close(weight, plain_readers.gptq(parts, -1, 4))
    for wrong in (-1, 2):
        with pytest.raises(ValueError):
            read_gptq((parts | {"g_idx": torch.full((32,), wrong)}).get, layout)
