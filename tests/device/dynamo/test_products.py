"""Products of host graphs by oneDNN: which are rewritten, and that results and gradients stay as exact."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from optimum_neuron.compiler.lower import choose, onednn
from optimum_neuron.device import products
from optimum_neuron.device.dynamo.products import use_onednn
from tests.compiler.passes.test_autocast import ROUND, UNIT_ROUNDOFF
from tests.device.conftest import OPTLEVELS, needs_compiler
from tests.device.dynamo.conftest import compiled
from tests.device.test_products import COLUMNS, CONTRACTED, ROWS, by_onednn, random  # noqa: F401  (fixture)

pytestmark = pytest.mark.skipif(not choose.has_onednn(), reason="torch was built without oneDNN")
CASES = {
    "mm": (torch.mm, (random(ROWS, CONTRACTED), random(CONTRACTED, COLUMNS)), 1),
    "mm of transposed": (torch.mm, (random(CONTRACTED, ROWS).t(), random(COLUMNS, CONTRACTED).t()), 1),
    "addmm": (torch.addmm, (random(COLUMNS), random(ROWS, CONTRACTED), random(CONTRACTED, COLUMNS)), 1),
    "twice": (lambda a: a @ a @ a, (random(256, 256),), 2),
    "small": (torch.mm, (random(16, 16), random(16, 16)), 0),
    "empty": (torch.mm, (random(0, CONTRACTED), random(CONTRACTED, COLUMNS)), 0),
    "one row": (torch.mm, (random(1, 2048), random(2048, 1024)), 0),
    "bfloat16": (torch.mm, (random(ROWS, CONTRACTED).bfloat16(), random(CONTRACTED, COLUMNS).bfloat16()), 0),
    "expanded": (torch.mm, (random(ROWS, CONTRACTED), random(1, COLUMNS).expand(CONTRACTED, COLUMNS)), 0),
    "bias expanded": (torch.addmm, (random(1).expand(COLUMNS), random(ROWS, 192), random(192, COLUMNS)), 0),
    "bias of one": (torch.addmm, (random(1), random(ROWS, CONTRACTED), random(CONTRACTED, COLUMNS)), 0),
    "bias of rows": (torch.addmm, (random(ROWS, 1), random(ROWS, CONTRACTED), random(CONTRACTED, COLUMNS)), 0),
    "factor": (lambda *a: torch.addmm(*a, beta=2), (random(128), random(ROWS, 192), random(192, COLUMNS)), 0),
    "factor of one": (lambda *a: torch.addmm(*a, beta=1.0), (random(128), random(ROWS, 192), random(192, COLUMNS)), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_which_products_are_rewritten(name):
    function, arguments, count = CASES[name]
    graph_module = make_fx(function, tracing_mode="fake")(*arguments)
    assert use_onednn(graph_module) == count
    targets = [node.target for node in graph_module.graph.nodes]
    assert targets.count(onednn.LINEAR) == count
    graph_module.graph.lint()
    result, expected = graph_module(*arguments).double(), function(*(argument.double() for argument in arguments))
    assert (result - expected).norm() <= (1e-6 if count else 3e-3) * expected.norm()


@pytest.mark.parametrize("optlevel", OPTLEVELS)
def test_gradients_are_as_exact_as_on_cpu(optlevel):
    torch.manual_seed(0)
    host = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256, bias=False), nn.Linear(256, 3))
    x, result = random(4, 64, 256), {}
    for kind, move in (("exact", lambda value: value.double()), ("ours", lambda value: value.to("neuron"))):
        model, inputs = move(copy.deepcopy(host)), move(x).requires_grad_()
        run = compiled(model, optlevel) if kind == "ours" else model
        run(inputs).pow(2).sum().backward()
        result[kind] = [value.grad.cpu().double() for value in (inputs, *model.parameters())]
    for actual, expected in zip(result["ours"], result["exact"], strict=True):
        assert (actual - expected).norm() / expected.norm() < 1e-6
    assert {graph.products.value for graph in torch.neuron.compile_report().graphs} == {"onednn"}


def test_unchanged_where_blas_multiplies():
    def product(a, b):
        return a @ b

    # Long sums, whose last digits depend on the order of additions.
    a, b = random(64, 3001), random(3001, 64)
    results = {}
    for library in ("blas", "onednn"):
        torch._dynamo.reset()
        with products.use(library):
            run = compiled(product)
            results[library] = run(a.to("neuron"), b.to("neuron")).cpu()
            assert torch.neuron.compile_report().graphs[-1].to_dict()["products"]["value"] == library
    assert torch.equal(results["blas"], a @ b) and not torch.equal(results["onednn"], a @ b)


def test_rounded_operands_stay_rounded():
    a, b = random(ROWS, CONTRACTED), random(CONTRACTED, COLUMNS)
    run = compiled(torch.mm, auto_cast="matmul")
    result = run(a.to("neuron"), b.to("neuron")).cpu().double()
    expected = a.bfloat16().double() @ b.bfloat16().double()
    assert (result - expected).norm() / expected.norm() < 3e-7


@needs_compiler
def test_weights_in_columns_are_not_copied():
    # The gradient of an input is a product with the weight as it lies, transposed.
    from torch._inductor.utils import run_and_get_code

    onednn.register_lowerings()
    gradient, weight = random(ROWS, CONTRACTED), random(CONTRACTED, COLUMNS)
    linear = torch.compile(lambda g, w: onednn.LINEAR(g, w.t(), None))
    result, (code,) = run_and_get_code(linear, gradient, weight)
    assert torch.equal(result, onednn.LINEAR(gradient, weight.t(), None))
    body = code[code.index("def call(") : code.index("def benchmark")]
    assert "reinterpret_tensor" in body and "empty_strided" not in body


GRADIENTS = {
    "attention": (F.scaled_dot_product_attention, [(2, 4, 48, 32)] * 3),
    "causal attention": (functools.partial(F.scaled_dot_product_attention, is_causal=True), [(2, 4, 48, 32)] * 3),
    "convolution": (F.conv2d, [(2, 8, 16, 16), (8, 8, 3, 3)]),
    "linear": (F.linear, [(32, 64), (48, 64)]),
}


@pytest.mark.parametrize("kind", ["bf16", "tf32"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_operands_are_rounded_forward_and_backward(name, kind):
    """Results and gradients are those of rounded operands and gradients in float64, and have errors of their type."""
    function, shapes = GRADIENTS[name]
    operands = [random(*shape) for shape in shapes]
    gradient = random(*function(*operands).shape)
    rounded, exact = (
        _with_gradients(function, [change(x).double() for x in operands], change(gradient).double())
        for change in (ROUND[kind], lambda x: x)
    )
    run = compiled(function, auto_cast="matmul", auto_cast_type=kind)
    results = _with_gradients(run, [x.to("neuron") for x in operands], gradient.to("neuron"))
    for actual, near, far in zip(results, rounded, exact, strict=True):
        actual = actual.cpu().double()
        assert (actual - near).norm() / near.norm() < 2e-6
        assert 0.2 * UNIT_ROUNDOFF[kind] < (actual - far).norm() / far.norm() < 2 * UNIT_ROUNDOFF[kind]


def _with_gradients(function, operands, gradient):
    operands = [x.requires_grad_() for x in operands]
    result = function(*operands)
    return [result.detach(), *torch.autograd.grad(result, operands, gradient)]
