"""Fourier transforms are refused with their own code, not as complex tensors; DFT by matmul passes."""

import math

import pytest
import torch


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.fft.fft(x).abs(),
        lambda x: torch.fft.rfft(x).abs(),
        lambda x: torch.fft.fft2(x).abs(),
    ],
    ids=["fft", "rfft", "fft2"],
)
def test_transforms_are_refused(check, function):
    refused = check(function, torch.randn(4, 8)).refused
    assert refused[0].op.startswith("aten.fft_")
    assert refused[0].code == "NCC_EVRF001"
    assert [r.code for r in refused[1:]] == ["NCC_EVRF004"]  # abs of its complex result


def test_dft_as_two_products_is_accepted(check):
    def power(x):
        angle = torch.arange(8.0)[:, None] * torch.arange(8.0) * (2 * math.pi / 8)
        return (x @ angle.cos()) ** 2 + (x @ angle.sin()) ** 2

    assert not check(power, torch.randn(4, 8)).refused
