"""Constants: 64-bit integers have to fit the 32 bits of the core."""

import operator

import pytest
import torch

from optimum_neuron.compiler.rules import OpCall, constants
from optimum_neuron.compiler.rules.constants import outside, outside_of_any

WIDE = 2**40
INT32 = torch.iinfo(torch.int32)


class Holds(torch.nn.Module):
    def __init__(self, value):
        super().__init__()
        self.register_buffer("value", torch.tensor([1, value]), persistent=False)

    def forward(self, x):
        return x + self.value


REFUSED = {
    "number": lambda x: x + WIDE,
    "first too large": lambda x: x + (INT32.max + 1),
    "first too small": lambda x: x.clamp(min=INT32.min - 1),
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
    "largest": (lambda x: x + INT32.max, torch.int64),
    "smallest": (lambda x: x.clamp(min=INT32.min), torch.int64),
    "slice": (lambda x: x[1:], torch.int64),
    "float": (lambda x: x + WIDE, torch.float32),
    "float result": (lambda x: x / WIDE, torch.int64),
    "no numbers": (lambda x: x[torch.tensor([], dtype=torch.int64)], torch.int64),
    "buffer": (Holds(INT32.max), torch.int64),
}


@pytest.mark.parametrize(("function", "dtype"), ACCEPTED.values(), ids=ACCEPTED)
def test_small_integers_and_floats_are_accepted(check, function, dtype):
    assert not check(function, torch.zeros(2, dtype=dtype)).refused


def first_outside(positions, size):
    return outside(positions, size, from_the_end=False)


def test_constants_are_computed_under_fake_tensor_mode():
    """A backend of torch.compile is called under a mode, with a graph of device tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    graph = torch.fx.Graph()
    node = graph.call_function(torch.ops.aten.arange.default, (10,), {"device": torch.device("meta")})
    graph.output(node)
    with FakeTensorMode():
        node.meta["val"] = torch.arange(10)
        assert first_outside(node, 3) == 9 and first_outside(node, 10) is None


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
    assert first_outside(positions(10, 0), 3) == 9 and first_outside(positions(11, 0), 3) is None


def test_computations_of_more_than_64_calls_are_not_made():
    assert first_outside(positions(10, 63), 3) == 72 and first_outside(positions(10, 64), 3) is None


def test_call_whose_result_is_used_twice_counts_once():
    last = positions(2, 1)
    first = last.args[0]
    for _ in range(30):
        added = first.meta["val"] + last.meta["val"]
        first, last = last, last.graph.call_function(torch.ops.aten.add.Tensor, (first, last))
        last.meta["val"] = added
    assert first_outside(last, 3) == int(last.meta["val"].max()) > 10**6


def test_a_mask_takes_as_many_dimensions_as_it_has():
    mask = torch.fx.Graph().placeholder("mask")
    mask.meta["val"] = torch.ones(3, 4, dtype=torch.bool)
    last, beyond = positions(5, 0), positions(6, 0)
    assert outside_of_any((3, 4, 5), [mask, last]) is None and outside_of_any((3, 4, 5), [mask, beyond]) == (5, 5)
    assert outside_of_any((3, 5, 9), [None, last]) is None and outside_of_any((3, 5, 9), [None, beyond]) == (5, 5)


def test_results_of_plain_functions_are_no_constants(export):
    nodes = export(lambda x: x.topk(2).indices, torch.rand(4)).graph.nodes
    assert [constants.judge(OpCall.from_node(node)) for node in nodes if node.target is operator.getitem][-1] is None
