"""Kernels as operators of PyTorch: eager, with gradients, in graphs of Dynamo and of torch.export, and in place."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.errors import ConfigError, KernelError
from optimum_neuron.nki import NKI_KERNEL, nki_op, wrap_nki
from tests.nki.elementwise import add_to_kernel, scale_kernel


@nki_op("optimum_neuron_tests::scale", mutates_args={})
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    return wrap_nki(scale_kernel)(x.relu(), factor)


@nki_op("optimum_neuron_tests::add_to", mutates_args={"x"})
def add_to(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return add_to_kernel(x, y)


def setup(ctx, inputs, output):
    x, ctx.factor = inputs
    ctx.save_for_backward(x)


def backward(ctx, gradient):
    (x,) = ctx.saved_tensors
    return scale_kernel(gradient, ctx.factor) * (x > 0), None


scale.register_autograd(backward, setup_context=setup)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 2, 4))

    def forward(self, x):
        return scale(x * self.weight, 3.0) + scale_kernel(x, 2.0)


def reference(model, x):
    return 3 * (x * model.weight).relu() + 2 * x


@pytest.fixture
def x():
    return torch.randn(128, 4, generator=torch.Generator().manual_seed(0))


def test_operator_has_a_gradient(x):
    model = Model()
    torch.testing.assert_close(model(x), reference(model, x))
    (gradient,) = torch.autograd.grad(model(x).sum(), [model.weight])
    torch.testing.assert_close(gradient, torch.autograd.grad(reference(model, x).sum(), [model.weight])[0])


def test_kernels_are_nodes_of_compiled_graphs(x):
    model, nodes = Model(), []

    def backend(graph_module, example_inputs):
        from functorch.compile import make_boxed_func
        from torch._dynamo.backends.common import aot_autograd

        def compiler(graph_module, example_inputs):
            nodes.extend(node.target for node in graph_module.graph.find_nodes(op="call_function", target=NKI_KERNEL))
            return make_boxed_func(graph_module)

        return aot_autograd(fw_compiler=compiler, bw_compiler=compiler)(graph_module, example_inputs)

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    result = compiled(x)
    torch.testing.assert_close(result, reference(model, x))
    (gradient,) = torch.autograd.grad(result.sum(), [model.weight])
    torch.testing.assert_close(gradient, torch.autograd.grad(reference(model, x).sum(), [model.weight])[0])
    assert len(nodes) == 3


def test_writes_to_arguments(x):
    expected, given, compiled = x + 1, x.clone(), x.clone()
    result = add_to(given, torch.ones(128, 4))
    assert torch.equal(given, expected) and torch.equal(result, expected) and result is not given
    torch._dynamo.reset()

    def function(x, y):
        add_to_kernel(x, y)
        return add_to(x, y) * 2

    torch.testing.assert_close(
        torch.compile(function, backend="aot_eager", fullgraph=True)(compiled, torch.ones(128, 4)), 2 * (x + 2)
    )
    assert torch.equal(compiled, x + 1 + 1)


def test_dynamic_shapes_become_static(x):
    torch._dynamo.reset()
    function = torch.compile(lambda x: scale_kernel(x, 2.0), backend="aot_eager", dynamic=True, fullgraph=True)
    for rows in (128, 64):
        assert torch.equal(function(x[:rows]), 2 * x[:rows])


def test_sizes_that_depend_on_values_are_refused(x):
    class Module(torch.nn.Module):
        def forward(self, x):
            return scale_kernel(x[x[:, 0].nonzero()[:, 0]], 2.0)

    with pytest.raises(KernelError) as excinfo:
        torch.export.export(Module(), (x,), strict=False)
    assert excinfo.value.details["rule"] == "dynamic"


def test_kernel_without_annotations_is_no_operator():
    with pytest.raises(ConfigError) as excinfo:
        nki_op("optimum_neuron_tests::kernel", mutates_args={})(scale_kernel)
    assert excinfo.value.details["op"] == "optimum_neuron_tests::kernel"
