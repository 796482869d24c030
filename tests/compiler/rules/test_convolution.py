"""A transposed convolution may have a stride or a dilation, not both."""

import pytest
import torch
from torch.nn import functional as F

IMAGE, KERNEL = torch.randn(1, 2, 8, 8), torch.randn(2, 2, 3, 3)


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"dilation": 2}, {"stride": 2, "dilation": 2}], ids=str)
def test_plain_convolution_takes_stride_and_dilation(check, options):
    assert not check(lambda x, w: F.conv2d(x, w, **options), IMAGE, KERNEL).refused


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"dilation": 2}], ids=str)
def test_transposed_convolution_takes_one_of_them(check, options):
    assert not check(lambda x, w: F.conv_transpose2d(x, w, **options), IMAGE, KERNEL).refused


def test_transposed_convolution_with_both_is_refused(check):
    (refused,) = check(lambda x, w: F.conv_transpose2d(x, w, stride=2, dilation=3), IMAGE, KERNEL).refused
    assert refused.code == "NCC_EVRF010"
    assert "stride 2" in refused.reason
    assert "dilation 3" in refused.reason


def test_general_convolution_is_judged_by_its_transposed_flag(check):
    def convolve(transposed):
        return lambda x, w: torch.convolution(x, w, None, [2, 2], [0, 0], [2, 2], transposed, [0, 0], 1)

    assert not check(convolve(False), IMAGE, KERNEL).refused
    assert [r.code for r in check(convolve(True), IMAGE, KERNEL).refused] == ["NCC_EVRF010"]


def test_gradient_of_a_strided_dilated_convolution_is_refused(check):
    def gradient(wanted):
        def run(grad, x, w):
            return torch.ops.aten.convolution_backward(
                grad, x, w, None, [2, 2], [0, 0], [2, 2], False, [0, 0], 1, [wanted, True, False]
            )[1]

        return run

    grad = torch.randn(1, 2, 2, 2)
    assert [r.code for r in check(gradient(True), grad, IMAGE, KERNEL).refused] == ["NCC_EVRF010"]
    assert not check(gradient(False), grad, IMAGE, KERNEL).refused


def test_gradient_of_a_transposed_convolution_is_a_plain_one(check):
    def gradient(grad, x, w):
        return torch.ops.aten.convolution_backward(
            grad, x, w, None, [2, 2], [0, 0], [2, 2], True, [0, 0], 1, [True, True, False]
        )[0]

    assert not check(gradient, torch.randn(1, 2, 19, 19), IMAGE, KERNEL).refused
