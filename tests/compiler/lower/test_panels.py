"""Weights in panels: sums in float32, the same for a row alone and beside others; lookups; which weights take them."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.compiler.lower import CpuFeatures, panels, probe_compiler
from optimum_neuron.compiler.lower.panels import readers
from optimum_neuron.compiler.lower.prepare import find
from tests.programs import body_of, spec

pytestmark = pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")

BF16 = CpuFeatures(isa="AVX512", has_bf16_dot=True)
NUM_TOKENS, WIDTH = 50, 38


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).bfloat16()


@pytest.fixture(params=["for any CPU", "for this CPU"])
def multiply(request):
    """The code without dot products, and the one with them if the CPU has them."""
    return dataclasses.replace(panels.KERNEL, flags=()).run if request.param == "for any CPU" else panels.LINEAR


@pytest.mark.parametrize(("num_inputs", "num_outputs"), [(64, 16), (WIDTH, NUM_TOKENS), (1030, 83)])
def test_sums_are_exact_and_do_not_depend_on_other_rows(multiply, num_inputs, num_outputs):
    x, weight = numbers(2, 27, num_inputs), numbers(num_outputs, num_inputs)
    stored = panels.panels(weight)
    result = multiply(x, stored)
    expected, magnitude = x.double() @ weight.double().T, x.abs().double() @ weight.abs().double().T
    # Errors of sums in float32 grow with the root of their length (Higham and Mary 2019); CPUs differ in the order.
    assert ((result.double() - expected).abs() <= num_inputs**0.5 * 2**-23 * magnitude).all()
    for num_rows in (*range(1, 9), 16, 17):
        assert (multiply(x[1:, :num_rows].contiguous(), stored) == result[1:, :num_rows]).all()


def test_lookup_reads_what_the_weight_has():
    weight, index = numbers(NUM_TOKENS, WIDTH), torch.arange(NUM_TOKENS).view(5, 10)
    assert (panels.look_up(panels.panels(weight), index) == F.embedding(index, weight)).all()


def tied_body():
    """A lookup, a product whose result stays in float32, and one that is rounded."""

    def tied(table, index, weight, bias):
        x = F.embedding(index, table)
        y = F.linear(x, weight, bias)
        return F.linear(y.float(), table.float()), y

    table, *layer = (spec(*shape, dtype="bfloat16") for shape in ((NUM_TOKENS, WIDTH), (WIDTH, WIDTH), (WIDTH,)))
    return body_of(tied, table, spec(5, dtype="int64"), *layer, num_outputs=2)


def test_subgraph_takes_panels():
    table, weight, bias = numbers(NUM_TOKENS, WIDTH), numbers(WIDTH, WIDTH), numbers(WIDTH)
    body, index = tied_body(), torch.tensor([3, 0, 49, 48, 7])
    logits, hidden = body(table, index, weight, bias)
    readers.take_panels(body, [0, 2])
    result = body(panels.panels(table), index, panels.panels(weight), bias)
    torch.testing.assert_close(result[1], hidden, atol=1e-2, rtol=1e-2)
    torch.testing.assert_close(result[0], logits, atol=0.1, rtol=1e-2)
    assert panels.is_in(body, BF16) and not panels.is_in(tied_body(), BF16)


def test_weights_of_products_in_bfloat16_are_in_panels():
    positions = {one.targets: one.size for one in find(tied_body(), BF16) if one.kind == "panels"}
    assert positions == {(0,): (5,), (2,): (5,)}
    assert not panels.is_supported(CpuFeatures(isa="AVX512", has_bf16_dot=False))
    odd = body_of(F.linear, spec(3, 5, dtype="bfloat16"), spec(4, 5, dtype="bfloat16"))
    assert not readers.find_readers(odd), "pairs of inputs"
    other = body_of(lambda x, w: F.linear(x, w) + w.sum(), *[spec(4, 4, dtype="bfloat16")] * 2)
    assert not readers.find_readers(other), "it is also read otherwise"


@pytest.mark.parametrize(
    "product",
    [
        lambda x, weight, bias: F.linear(x, weight.t(), bias),
        lambda x, weight, bias: torch.addmm(bias, x, weight),
        lambda x, weight, bias: torch.mm(x, weight) + bias,
    ],
)
def test_weight_with_its_inputs_first_is_in_panels_of_outputs(product):
    x, weight, bias = numbers(3, WIDTH), numbers(WIDTH, NUM_TOKENS), numbers(NUM_TOKENS)
    body = body_of(product, *(spec(*tensor.shape, dtype="bfloat16") for tensor in (x, weight, bias)))
    place = [node.meta["val"].shape for node in body.graph.find_nodes(op="placeholder")].index(weight.shape)
    (one,) = (one for one in find(body, BF16) if one.kind == "panels")
    assert one.targets == (place,) and one.options == (True,) and one.size == (3,)
    arguments = {tuple(tensor.shape): tensor for tensor in (x, weight, bias)}
    arguments = [arguments[tuple(node.meta["val"].shape)] for node in body.graph.find_nodes(op="placeholder")]
    expected = body(*arguments)
    readers.take_panels(body, [place])
    arguments[place] = panels.panels(weight, is_transposed=True)
    (result,) = body(*arguments)
    assert panels.is_in(body, BF16)
    torch.testing.assert_close(result, expected[0], atol=1e-2, rtol=1e-2)


def test_weight_that_is_read_both_ways_stays_as_it_is():
    both = body_of(lambda x, w: F.linear(x, w) + x @ w, *[spec(4, 4, dtype="bfloat16")] * 2)
    assert not readers.find_readers(both)
    scaled = body_of(lambda b, x, w: torch.addmm(b, x, w, beta=2), *[spec(4, 4, dtype="bfloat16")] * 3)
    assert not readers.find_readers(scaled), "a factor of the bias"


def test_sums_of_many_rows_are_rounded_in_parts(monkeypatch):
    x, weight, bias = numbers(3, 5, WIDTH), panels.panels(numbers(NUM_TOKENS, WIDTH)), numbers(NUM_TOKENS)
    expected = panels.multiply_in_bfloat16(x, weight, bias)
    monkeypatch.setattr(panels, "MAX_SUMS_BYTES", NUM_TOKENS * 4 * 4)
    assert (panels.multiply_in_bfloat16(x, weight, bias) == expected).all()
