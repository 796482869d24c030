"""Integer products: int64 never, int32 with a warning before trn2 and never after."""

import pytest
import torch

from optimum_neuron.core import Verdict


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
def test_int32_is_accepted_with_a_warning_before_trn2(check, target):
    report = check(torch.mm, *product(torch.int32), target=target)
    (warning,) = report.warnings
    assert (warning.verdict, warning.code) == (Verdict.NATIVE, "NCC_EVRF035")
    assert "2^24" in warning.reason


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_int32_is_refused_from_trn2_on(ruling, target):
    found = ruling("aten.mm", torch.mm, *product(torch.int32), target=target)
    assert found.code == "NCC_EVRF035"
    assert "NeuronCore-v" in found.reason


def test_int8_is_exact_and_accepted(check):
    report = check(torch._int_mm, *product(torch.int8), target="trn2")
    assert not report.refused
    assert not report.warnings
