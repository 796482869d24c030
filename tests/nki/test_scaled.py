"""Microscaling: blocks, scales, and matmuls of them, against the formats' definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from optimum_neuron.errors import KernelError
from optimum_neuron.nki import isa as nisa, jit, language as nl
from tests.raising import raises


def quantize_and_multiply(left, right, dtype):
    partitions, columns, moved = left.shape[0], left.shape[1] // 4, right.shape[1] // 4
    tiles = []
    for source, width in ((left, columns), (right, moved)):
        packed, scale = nl.ndarray((partitions, width), dtype), nl.ndarray((partitions, width), nl.uint8)
        nisa.quantize_mx(packed, nl.load(source), scale)
        tiles.append((packed, scale))
    (stationary, stationary_scale), (moving, moving_scale) = tiles
    result = nl.ndarray((columns, moved), nl.float32, buffer=nl.psum)
    nisa.nc_matmul_mx(result, stationary, moving, stationary_scale, moving_scale)
    out = nl.ndarray((columns, moved), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(out, nl.copy(result))
    return out


@pytest.mark.parametrize(("dtype", "tolerance"), [("float8_e4m3fn_x4", 0.06), ("float8_e5m2_x4", 0.1)])
@pytest.mark.parametrize("partitions", [32, 128])
def test_matmul_of_quantized_tiles(dtype, tolerance, partitions):
    """Two roundings, of 3 or 2 bits of mantissa."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(partitions, 4 * n, generator=generator).bfloat16() for n in (8, 12))
    result = jit(quantize_and_multiply)(left, right, dtype)
    values = [t.float().reshape(partitions, -1, 4).transpose(1, 2).reshape(partitions * 4, -1) for t in (left, right)]
    reference = values[0].T @ values[1]
    assert (result - reference).norm() / reference.norm() < tolerance


@pytest.mark.parametrize("start", [4, 12])
def test_scales_of_several_tensors_share_a_tile(start):
    """Both scales are in one tile, those of the moving one from another partition of each 32 on: the same product,
    which a second matmul adds once more."""

    def body(left, right):
        width = right.shape[1] // 4
        scales = nl.ndarray((128, width), nl.uint8)
        places = scales[:, : left.shape[1] // 4], scales[start:, :]
        packed = [nl.ndarray((128, source.shape[1] // 4), nl.float8_e4m3fn_x4) for source in (left, right)]
        for tile, source, scale in zip(packed, (left, right), places, strict=True):
            nisa.quantize_mx(tile, nl.load(source), scale)
        result = nl.ndarray((packed[0].shape[1], width), nl.float32, buffer=nl.psum)
        for _ in range(2):
            nisa.nc_matmul_mx(result, *packed, *places, tile_size=(128, 128))
        out = nl.ndarray(result.shape, nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, nl.copy(result))
        return out

    left, right = (torch.randn(128, 4 * n, generator=torch.Generator().manual_seed(n)).bfloat16() for n in (8, 12))
    assert torch.equal(jit(body)(left, right), 2 * jit(quantize_and_multiply)(left, right, "float8_e4m3fn_x4"))


def test_scales_start_at_four_places_of_a_quadrant():
    def body(x):
        scales = nl.ndarray((128, 8), nl.uint8)
        nisa.quantize_mx(nl.ndarray((32, 8), nl.float8_e4m3fn_x4), nl.load(x), scales[5:40])

    with raises(KernelError, rule="start_partition", operand="dst_scale", start=5):
        jit(body)(torch.ones(32, 32).bfloat16())


def test_scale_is_that_of_the_largest_value_of_a_block():
    source = torch.ones(32, 8).bfloat16()
    source[3, 2], source[8:16] = -100.0, 0

    def body(source):
        packed, scale = nl.ndarray((32, 2), nl.float8_e4m3fn_x4), nl.ndarray((4, 2), nl.uint8)
        nisa.quantize_mx(packed, nl.load(source), scale)
        outs = nl.ndarray((4, 2), nl.uint8, nl.shared_hbm), nl.ndarray((32, 2), nl.float8_e4m3fn_x4, nl.shared_hbm)
        nisa.dma_copy(outs[0], scale)
        nisa.dma_copy(outs[1], packed)
        return outs

    scale, packed = jit(body)(source)
    exponent = math.floor(math.log2(100)) - 8
    assert scale.tolist() == [[127 + exponent, 119], [0, 0], [119, 119], [119, 119]]
    values = packed.view(torch.float8_e4m3fn).float()
    assert values[3, 2] * 2.0**exponent == -96 and values[0, 0] * 2.0**exponent == 1 and (values[8:16] == 0).all()


def test_four_bit_values():
    table = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    codes = np.random.default_rng(0).integers(0, 16, (32, 2, 4))
    values = np.array([*table, *(-value for value in table)])[codes]
    packed = (codes * 16 ** np.arange(4)).sum(-1).astype(np.uint16)

    def body(packed, scale):
        tile, scales = nl.load(packed).view(nl.float4_e2m1fn_x4), nl.load(scale)
        result = nl.ndarray((2, 2), nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(result, tile, tile, scales, scales)
        out = nl.ndarray((2, 2), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, nl.copy(result))
        return out

    scale = np.array([[127, 128], [126, 127], [127, 127], [130, 127]], np.uint8)
    result = jit(body)(packed, scale)
    scaled = values * 2.0 ** (scale.astype(int) - 127).repeat(8, 0)[:, :, None]
    np.testing.assert_allclose(result, np.einsum("pmi,pni->mn", scaled, scaled), rtol=1e-6)


def refused(body):
    with pytest.raises(KernelError) as excinfo:
        jit(body)()
    return excinfo.value.details


def test_refused(monkeypatch):
    def quantize(partitions=32, elements=8, dtype=nl.bfloat16):
        source, packed = nl.zeros((partitions, elements), dtype), nl.zeros((partitions, 2), nl.float8_e4m3fn_x4)
        nisa.quantize_mx(packed, source, nl.zeros((partitions, 2), nl.uint8))

    assert refused(lambda: quantize(partitions=16))["operand"] == "src"
    assert refused(lambda: quantize(elements=9))["rule"] == "shape"
    assert refused(lambda: quantize(dtype=nl.float32))["rule"] == "dtype"

    def multiply(columns):
        tile, scale = nl.zeros((32, columns), nl.float8_e4m3fn_x4), nl.zeros((4, columns), nl.uint8)
        result = nl.zeros((columns, columns), nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(result, tile, tile, scale, scale)

    assert refused(lambda: multiply(3))["rule"] == "shape"
    assert refused(lambda: nisa.nc_matmul_mx(*[nl.zeros((32, 4), nl.uint8)] * 5))["rule"] == "buffer"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    assert refused(lambda: nisa.quantize_mx(*[nl.zeros((32, 4), nl.bfloat16)] * 3))["rule"] == "generation"
