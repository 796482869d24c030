"""A transposed convolution may have a stride or a dilation, not both."""

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.compiler.rules import check_graph
from optimum_neuron.hardware import TARGETS

IMAGE, KERNEL = torch.randn(1, 2, 8, 8), torch.randn(2, 2, 3, 3)


BOTH = {"stride": 2, "dilation": 2}


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"dilation": 2}, BOTH], ids=str)
@pytest.mark.parametrize("convolve", [F.conv2d, F.conv_transpose2d])
def test_only_transposed_convolution_cannot_have_both(check, convolve, options):
    result = check(lambda x, w: convolve(x, w, **options), IMAGE, KERNEL).refused
    assert bool(result) == (convolve is F.conv_transpose2d and options == BOTH)


def test_transposed_convolution_with_both_is_refused(check):
    (error,) = check(lambda x, w: F.conv_transpose2d(x, w, stride=2, dilation=3), IMAGE, KERNEL).refused
    assert error.code == "NCC_EVRF010" and "stride 2" in error.reason and "dilation 3" in error.reason


def test_general_convolution_is_judged_by_its_transposed_flag(check):
    def convolve(transposed):
        return lambda x, w: torch.convolution(x, w, None, [2, 2], [0, 0], [2, 2], transposed, [0, 0], 1)

    assert not check(convolve(False), IMAGE, KERNEL).refused
    assert [r.code for r in check(convolve(True), IMAGE, KERNEL).refused] == ["NCC_EVRF010"]


def gradient(transposed, needs_input_gradient):
    """Gradients of a convolution with stride 2 and dilation 2, with or without the input gradient."""
    options = None, [2, 2], [0, 0], [2, 2], transposed, [0, 0], 1, [needs_input_gradient, True, False]
    return lambda grad, x, w: torch.ops.aten.convolution_backward(grad, x, w, *options)[1]


def test_gradient_of_input_is_transposed_convolution(check):
    small, large = torch.randn(1, 2, 2, 2), torch.randn(1, 2, 19, 19)
    assert [r.code for r in check(gradient(False, True), small, IMAGE, KERNEL).refused] == ["NCC_EVRF010"]
    assert not check(gradient(False, False), small, IMAGE, KERNEL).refused
    assert not check(gradient(True, True), large, IMAGE, KERNEL).refused


def test_one_number_stands_for_every_dimension():
    graph = torch.fx.Graph()
    x, kernel = graph.placeholder("x"), graph.placeholder("kernel")
    x.meta["val"], kernel.meta["val"] = IMAGE, KERNEL
    for stride in (1, 2):
        node = graph.call_function(torch.ops.aten.conv_transpose2d.input, (x, kernel, None, stride, 0, 0, 1, 2))
        node.meta["val"] = IMAGE
    refused = check_graph(torch.fx.GraphModule({}, graph), TARGETS["inf2"]).refused
    assert ["stride 2" in ruling.reason for ruling in refused] == [True]
