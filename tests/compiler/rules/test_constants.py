"""Constants: 64-bit integers have to fit the 32 bits of the core."""

import pytest
import torch

from optimum_neuron.compiler.rules.constants import outside

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
