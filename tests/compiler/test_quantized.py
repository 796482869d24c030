"""The operator of quantized products in a graph: work, and traffic by the stored bytes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from optimum_neuron.compiler import DYNAMIC_LINEAR, QUANTIZED_LINEAR, work_of
from optimum_neuron.compiler.rules import OpCall
from optimum_neuron.simulator.work import work_of_graph
from optimum_neuron.weights import Scheme, dequantize, quantize_rows

NUM_OUTPUTS, NUM_INPUTS = 96, 128


class Product(nn.Module):
    def forward(self, x, values, scale, zero=None):
        return QUANTIZED_LINEAR(x, values, scale, zero, None)


def graph_of(scheme, num_rows=2):
    parts = Scheme.parse(scheme).quantize(torch.randn(NUM_OUTPUTS, NUM_INPUTS))
    x = torch.randn(num_rows, NUM_INPUTS, dtype=torch.bfloat16)
    exported = torch.export.export(Product(), (x, *parts.values()))
    return exported.graph_module, parts


def call_of(scheme, num_rows=2):
    graph_module, _ = graph_of(scheme, num_rows)
    (node,) = graph_module.graph.find_nodes(op="call_function", target=QUANTIZED_LINEAR)
    return OpCall.from_node(node)


@pytest.mark.parametrize("scheme", ["int8", "fp8", "int4", "int4-g64-zp"])
def test_traffic_is_that_of_the_stored_bytes(scheme):
    graph_module, parts = graph_of(scheme)
    roles = ["value", *["weight"] * len(parts)]
    work = work_of_graph(graph_module, roles=roles).total
    assert work.weight_bytes == sum(tensor.numel() * tensor.element_size() for tensor in parts.values())
    assert work.product_flops == 2 * 2 * NUM_OUTPUTS * NUM_INPUTS
    assert work.unpacked_elements == (NUM_OUTPUTS * NUM_INPUTS if scheme.startswith("int4") else 0)


def test_four_bits_are_unpacked_by_the_vector_engine():
    eight, four = (work_of(call_of(scheme)) for scheme in ("int8", "int4"))
    assert four.vector_elements - eight.vector_elements == 2 * NUM_OUTPUTS * (NUM_INPUTS // 32 - 1)
    assert (eight.unpacked_elements, four.unpacked_elements) == (0, NUM_OUTPUTS * NUM_INPUTS)


def test_weight_of_a_prompt_is_scaled_instead_of_its_sums():
    work = work_of(call_of("int4", num_rows=64))
    assert work.vector_elements == 64 * NUM_OUTPUTS  # results
    assert work.unpacked_elements == 2 * NUM_OUTPUTS * NUM_INPUTS
    assert work_of(call_of("int8", num_rows=64)).unpacked_elements == 0


@pytest.mark.parametrize("scheme", ["int8", "fp8"])
def test_rows_are_quantized_before_the_product(scheme):
    x, weight = torch.randn(3, NUM_INPUTS), torch.randn(NUM_OUTPUTS, NUM_INPUTS)
    x[1] *= 100
    parts = Scheme.parse(scheme).quantize(weight)
    actual = DYNAMIC_LINEAR(x, parts["values"], parts["scale"], torch.ones(NUM_OUTPUTS))
    numbers, scale = quantize_rows(x, parts["values"].dtype)
    expected = (numbers.double() * scale) @ dequantize(parts["values"], parts["scale"]).double().t() + 1
    torch.testing.assert_close(actual.double(), expected, atol=1e-4, rtol=1e-5)
    assert ((numbers.float() * scale - x).abs() <= scale * (0.5 if scheme == "int8" else 8)).all()


def test_quantizing_rows_takes_two_passes_and_the_16_bit_rate():
    x = torch.randn(2, NUM_INPUTS)
    parts = Scheme.parse("int8").quantize(torch.randn(NUM_OUTPUTS, NUM_INPUTS))
    calls = []
    for operator, arguments in ((QUANTIZED_LINEAR, (None, None)), (DYNAMIC_LINEAR, (None,))):
        exported = torch.export.export(Called(operator, arguments), (x, *parts.values()))
        (node,) = exported.graph_module.graph.find_nodes(op="call_function", target=operator)
        calls.append(OpCall.from_node(node))
    plain, dynamic = map(work_of, calls)
    assert (plain.dtype, dynamic.dtype) == ("float32", "bfloat16") and plain.tensor_cycles == dynamic.tensor_cycles
    assert dynamic.vector_elements - plain.vector_elements == 2 * 2 * NUM_INPUTS


class Called(nn.Module):
    def __init__(self, operator, arguments):
        super().__init__()
        self.operator, self.arguments = operator, arguments

    def forward(self, *tensors):
        return self.operator(*tensors, *self.arguments)
