"""Numbers of mxfp4: the values of the OCP's table, and the nearest of them for each weight."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.weights.mx import mx_numbers, mx_scale, quantize_mx, unpack_mx

MAGNITUDES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
"""Values of fp4 e2m1 (OCP Microscaling Formats 1.0, table 5)."""
LEVELS = torch.cat([MAGNITUDES, -MAGNITUDES])


def test_values_of_codes_and_exponents():
    numbers = mx_numbers(torch.arange(16, dtype=torch.uint8))
    assert torch.equal(numbers, LEVELS) and torch.equal(numbers.signbit(), LEVELS.signbit())
    packed = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(unpack_mx(packed), LEVELS[torch.stack([packed % 16, packed // 16], -1).long()].flatten())
    exponents = torch.arange(1, 255, dtype=torch.uint8)
    assert torch.equal(mx_scale(exponents), 2.0 ** (exponents.double() - 127).float())
    assert mx_scale(torch.tensor([0], dtype=torch.uint8)).tolist() == [0.0]


@pytest.mark.parametrize("factor", [2.0**-100, 1e-3, 1.0, 3e4])
def test_weights_become_the_nearest_numbers(factor):
    """The shared exponent is that of the largest weight less 2, that of 6 (section 6.3)."""
    weight = torch.randn(64, 3, 32, generator=torch.Generator().manual_seed(0)) * factor
    values, scale = quantize_mx(weight)
    exponent = weight.abs().amax(-1).double().log2().floor() - 2
    assert torch.equal(scale.double() - 127, exponent)
    scaled = weight.double() / 2.0 ** exponent[..., None]
    distance = (scaled[..., None] - LEVELS.double()).abs().amin(-1)
    numbers = unpack_mx(values).double()
    assert torch.equal((scaled - numbers).abs(), distance)
    assert not (numbers * scaled < 0).any() and numbers.abs().max() == 6


def test_weights_are_rounded_as_by_gguf():
    gguf = pytest.importorskip("gguf")
    weight = torch.randn(16, 64, generator=torch.Generator().manual_seed(1))
    kind = gguf.GGMLQuantizationType.MXFP4
    theirs = torch.from_numpy(gguf.dequantize(gguf.quantize(weight.numpy(), kind), kind))
    values, scale = quantize_mx(weight.unflatten(1, (-1, 32)))
    assert torch.equal((unpack_mx(values) * mx_scale(scale)[..., None]).flatten(1), theirs)


def test_runs_of_zeros_and_of_tiny_numbers_are_finite():
    weight = torch.zeros(2, 32)
    weight[1, 3] = 1e-40
    values, scale = quantize_mx(weight)
    assert scale[1] == 1, "the least exponent that is not zero"
    assert not (unpack_mx(values) * mx_scale(scale)[..., None]).any() and not values[0].any()
    weight[0, 0] = torch.finfo(torch.float32).max
    values, scale = quantize_mx(weight)
    assert scale[0] == 252 and unpack_mx(values)[0, 0] == 6
