"""Shapes of scales, and numbers that a scheme cannot have."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.weights import Layout, Scheme
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
    assert matrix(small, 15).parts(with_zeros) is not None and matrix(small, 0).parts(with_zeros) is not None
    assert matrix(large, 8).parts(int4) is None and matrix(large, 8).parts(with_zeros) is None
    parts = matrix(large, 128).parts(int8)
    assert torch.equal(parts["values"], (large - 128).to(torch.int8)) and matrix(large, 127).parts(int8) is None
    assert matrix(large, 128).parts(fp8) is None
    assert matrix(small, 8, group_I=torch.zeros(32, dtype=torch.long)).parts(int4) is None
    assert torch.equal(matrix(large, 3).dequantized(), large.float() - 3)


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
