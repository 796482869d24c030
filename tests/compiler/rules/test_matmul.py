"""Integer products: int64 never, int32 with a warning before trn2 and never after. Attention is two products."""

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.base.core import Verdict
from optimum_neuron.compiler.rules import check_graph, product_operands
from optimum_neuron.hardware import TARGETS


def product(dtype):
    return torch.ones(4, 8, dtype=dtype), torch.ones(8, 4, dtype=dtype)


@pytest.mark.parametrize(
    "function",
    [
        torch.mm,
        torch.matmul,
        lambda a, b: torch.nn.functional.linear(a, b.T, torch.zeros(4, dtype=a.dtype)),
        lambda a, b: torch.addmm(torch.zeros(4, 4, dtype=a.dtype), a, b),
        lambda a, b: torch.bmm(a[None], b[None]),
        lambda a, b: torch.einsum("ij,jk->ik", a, b),
    ],
    ids=["mm", "matmul", "linear", "addmm", "bmm", "einsum"],
)
class TestEveryProduct:
    def test_bfloat16_is_accepted(self, check, function):
        assert not check(function, *product(torch.bfloat16)).refused

    def test_int64_is_refused(self, check, function):
        assert {r.code for r in check(function, *product(torch.int64)).refused} == {"NCC_EVRF035"}


@pytest.mark.parametrize("target", ["inf2", "trn1"])
def test_int32_is_accepted_with_warning_before_trn2(check, target):
    report = check(torch.mm, *product(torch.int32), target=target)
    (warning,) = [r for r in report.rulings if r.code]
    assert (warning.verdict, warning.code) == (Verdict.NATIVE, "NCC_EVRF035") and "2^24" in warning.reason


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_int32_is_refused_from_trn2_on(ruling, target):
    result = ruling("aten.mm", torch.mm, *product(torch.int32), target=target)
    assert result.code == "NCC_EVRF035" and "NeuronCore-v" in result.reason


def test_int8_is_exact_and_accepted(check):
    report = check(torch._int_mm, *product(torch.int8), target="trn2")
    assert not [r for r in report.rulings if r.code]


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def heads(dtype):
    return [torch.zeros(1, 2, 4, 8, dtype=dtype) for _ in range(3)]


def test_attention_is_decomposed(ruling):
    result = ruling("aten.scaled_dot_product_attention", attend, *heads(torch.bfloat16))
    assert result.verdict is Verdict.DECOMPOSED and "AwsNeuronSoftmax" in result.reason


def test_decomposed_attention_is_accepted(export):
    exported_program = export(attend, *heads(torch.float32)).run_decompositions()
    report = check_graph(exported_program, TARGETS["trn2"])
    assert not report.refused and "aten._softmax.default" in {r.op for r in report.rulings}


def test_attention_in_float64_is_refused(ruling):
    assert ruling("aten.scaled_dot_product_attention", attend, *heads(torch.float64)).code == "NCC_ESPP004"


def test_operands_of_products():
    graph = torch.fx.Graph()
    x, y, z = map(graph.placeholder, "xyz")
    aten = torch.ops.aten
    for target, arguments, operands in (
        (aten.mm.default, (x, y), [x, y]),
        (aten.addmm.default, (x, y, z), [y, z]),
        (aten.einsum.default, ("ij,jk->ik", [x, y]), [x, y]),
        (aten.einsum.default, ("ij,jk->ik", (x, y)), [x, y]),
        (aten.add.Tensor, (x, y), []),
    ):
        assert product_operands(graph.call_function(target, arguments)) == operands
