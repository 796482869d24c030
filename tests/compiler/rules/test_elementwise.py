"""Arithmetic, comparisons and activations map to published instructions."""

import pytest
import torch

from optimum_neuron.core import Verdict


@pytest.mark.parametrize(
    ("function", "instruction"),
    [
        (lambda x: x + 1, "Add"),
        (lambda x: x.add_(1), "Add"),
        (torch.rsqrt, "Rsqrt"),
        (lambda x: x > 0, "Compare"),
        (torch.nn.functional.relu, "Max"),
        (torch.nn.functional.silu, "AwsNeuronSilu"),
        (torch.nn.functional.gelu, "AwsNeuronGelu"),
        (torch.erf, "AwsNeuronErf"),
    ],
    ids=["add", "add_", "rsqrt", "gt", "relu", "silu", "gelu", "erf"],
)
def test_native(check, function, instruction):
    (found,) = check(function, torch.randn(4)).rulings
    assert found.verdict is Verdict.NATIVE
    assert found.reason == f"maps to {instruction}"


def test_compositions_are_decomposed(ruling):
    found = ruling("aten.sigmoid", torch.sigmoid, torch.randn(4))
    assert found.verdict is Verdict.DECOMPOSED
    assert found.reason == "made of Neg, Exp, Add, Div"


def test_complex_arithmetic_is_refused(ruling):
    assert ruling("aten.mul", lambda x: x * x, torch.zeros(4, dtype=torch.complex64)).code == "NCC_EVRF004"


def test_an_activation_without_a_published_form_is_refused(ruling):
    assert ruling("aten.digamma", torch.digamma, torch.ones(4)).code == "NCC_EUOC002"
