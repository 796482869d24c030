"""Constants: 64-bit integers have to fit the 32 bits of the core."""

import pytest
import torch

from optimum_neuron.compiler.rules import constants
from optimum_neuron.compiler.rules.constants import outside, outside_of_any

WIDE = 2**40


class Holds(torch.nn.Module):
    def __init__(self, value):
        super().__init__()
        self.register_buffer("value", torch.tensor([1, value]), persistent=False)

    def forward(self, x):
        return x + self.value


REFUSED = {
    "number": lambda x: x + WIDE,
    "comparison": lambda x: x < WIDE,
    "fill": lambda x: x.masked_fill(x > 0, torch.iinfo(torch.int64).max),
    "made": lambda x: x + torch.full((2,), -WIDE),
    "tensor": lambda x: x + torch.tensor([WIDE, 0]),
    "buffer": Holds(-WIDE),
}


@pytest.mark.parametrize("function", REFUSED.values(), ids=REFUSED)
def test_integers_beyond_32_bits_are_refused(check, function):
    (error,) = check(function, torch.zeros(2, dtype=torch.int64)).refused
    assert error.code == "NCC_ESFH002"


ACCEPTED = {
    "largest": (lambda x: x + (2**31 - 1), torch.int64),
    "smallest": (lambda x: x.clamp(min=-(2**31)), torch.int64),
    "slice": (lambda x: x[1:], torch.int64),
    "float": (lambda x: x + WIDE, torch.float32),
    "buffer": (Holds(2**31 - 1), torch.int64),
}


@pytest.mark.parametrize(("function", "dtype"), ACCEPTED.values(), ids=ACCEPTED)
def test_small_integers_and_floats_are_accepted(check, function, dtype):
    assert not check(function, torch.zeros(2, dtype=dtype)).refused


def test_constants_are_computed_under_fake_tensor_mode():
    """A backend of torch.compile is called under a mode, with a graph of device tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    graph = torch.fx.Graph()
    node = graph.call_function(torch.ops.aten.arange.default, (10,), {"device": torch.device("meta")})
    graph.output(node)
    with FakeTensorMode():
        node.meta["val"] = torch.arange(10)
        assert outside(node, 3) == 9 and outside(node, 10) is None


def positions(num_elements, num_sums):
    """The last of so many sums on a range of numbers, as a node of a graph."""
    ops, graph = torch.ops.aten, torch.fx.Graph()
    node = graph.call_function(ops.arange.default, (num_elements,), {"device": torch.device("cpu")})
    node.meta["val"] = torch.arange(num_elements)
    for _ in range(num_sums):
        previous = node.meta["val"]
        node = graph.call_function(ops.add.Tensor, (node, 1))
        node.meta["val"] = previous + 1
    graph.output(node)
    return node


def test_large_constants_are_not_computed(monkeypatch):
    monkeypatch.setattr(constants, "_MAX_ELEMENTS", 10)
    assert outside(positions(10, 0), 3) == 9 and outside(positions(11, 0), 3) is None


def test_long_computations_of_constants_are_not_made(monkeypatch):
    monkeypatch.setattr(constants, "_MAX_NODES", 4)
    assert outside(positions(10, 3), 3) == 12 and outside(positions(10, 4), 3) is None


def test_a_mask_takes_as_many_dimensions_as_it_has():
    mask = torch.fx.Graph().placeholder("mask")
    mask.meta["val"] = torch.ones(3, 4, dtype=torch.bool)
    last, beyond = positions(5, 0), positions(6, 0)
    assert outside_of_any((3, 4, 5), [mask, last]) is None and outside_of_any((3, 4, 5), [mask, beyond]) == (5, 5)
    assert outside_of_any((3, 5), [None, last]) is None and outside_of_any((3, 5), [None, beyond]) == (5, 5)
