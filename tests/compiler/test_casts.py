"""Captured casts of torch.autocast: the results, their dtypes, and where it is off."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from optimum_neuron.compiler import capture
from optimum_neuron.compiler.passes import outline, verify
from optimum_neuron.errors import CaptureError
from tests.programs import Calls, operators, run_program, spec
from tests.raising import raises

SIZE = 16


class Block(nn.Module):
    """Operators that autocast casts to the narrow dtype, to float32, or not at all."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(SIZE, 2 * SIZE), nn.Linear(2 * SIZE, SIZE, bias=False)
        self.convolution, self.norm = nn.Conv1d(2, 2, 3, padding=1), nn.LayerNorm(SIZE)

    def forward(self, x):
        y = self.down(F.silu(self.up(self.norm(x))))
        y = y + F.scaled_dot_product_attention(x, y.float(), x)
        y = torch.einsum("bij,bkj->bik", y, x) @ torch.ones(2, SIZE)
        return self.convolution(torch.stack([y[:, 0], x[:, 1]], 1)).softmax(-1) + x.cumsum(-1)


def computed(module, *inputs):
    """Results of the captured graph, and of the module."""
    names = {f"x{number}": spec(*x.shape, dtype=str(x.dtype)[6:]) for number, x in enumerate(inputs)}
    program = verify(outline(capture(module, name="graph", inputs=names)), after="outline")
    with torch.no_grad():
        return program, run_program(program, module, list(inputs))["output"], module(*inputs)


class Region(Block):
    def __init__(self, dtype=torch.bfloat16, **options):
        super().__init__()
        self.options = {"device_type": "cpu", "dtype": dtype, **options}

    def forward(self, x):
        with torch.autocast(**self.options):
            return super().forward(x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_regions_compute_in_their_dtype(dtype):
    torch.manual_seed(0)
    module, x = Region(dtype), torch.randn(1, 2, SIZE)
    _, actual, expected = computed(module, x)
    assert actual.dtype == expected.dtype and torch.equal(actual, expected)
    assert not torch.equal(expected, Block.forward(module, x))


def test_an_active_autocast_is_captured():
    torch.manual_seed(0)
    module, x = Block(), torch.randn(1, 2, SIZE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        names = {"x": spec(*x.shape)}
        program = outline(capture(module, name="graph", inputs=names))
        expected = module(x)
    assert torch.equal(run_program(program, module, [x])["output"], expected)


def test_nothing_is_cast_where_autocast_is_off_or_has_no_effect():
    plain, off = (computed(module, torch.ones(1, 2, SIZE))[0] for module in (Block(), Region(enabled=False)))
    assert plain.subprograms.keys() == off.subprograms.keys()

    def narrow(x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.linear(x, y).softmax(-1, dtype=torch.float32)

    x, y = torch.randn(2, 4, 4, dtype=torch.bfloat16)
    program, actual, expected = computed(Calls(narrow), x, y)
    (body,) = program.subprograms.values()
    assert operators(body.body) == ["aten.linear.default", "aten.softmax.int"] and torch.equal(actual, expected)


def test_regions_inside_regions():
    def function(x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            wide = x @ y
            with torch.autocast("cpu", enabled=False):
                exact = x @ y
            with torch.enable_grad():
                both = x.bfloat16() @ y
        with torch.enable_grad():
            exact = exact - x @ y
            with torch.autocast("cpu", dtype=torch.bfloat16):
                narrow = y @ x
        return wide + exact - (x @ y) * both + narrow.float()

    x, y = torch.randn(2, 4, 4)
    _, actual, expected = computed(Calls(function), x, y)
    assert actual.dtype == expected.dtype == torch.float32 and torch.equal(actual, expected)


def test_casts_that_a_graph_cannot_say_are_refused():
    lstm = nn.LSTM(4, 4)

    def function(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return lstm(x)[0]

    module = Calls(function)
    module.lstm = lstm
    with raises(CaptureError, op="aten.lstm.input") as error:
        capture(module, name="graph", inputs={"x": spec(3, 1, 4)})
    assert error.value.details["source_line"] in str(error.value)
