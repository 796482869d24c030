"""Constants and ranges."""

import pytest
import torch

from optimum_neuron.core import Verdict


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("aten.arange", lambda x: x + torch.arange(4)),
        ("aten.zeros_like", lambda x: x + torch.zeros_like(x)),
        ("aten.full", lambda x: x + torch.full((4,), 2.0)),
        ("aten.new_ones", lambda x: x + x.new_ones(4)),
    ],
)
def test_native(ruling, op, function):
    assert ruling(op, function, torch.randn(4)).verdict is Verdict.NATIVE


def test_a_float64_constant_is_refused(ruling):
    found = ruling("aten.full", lambda x: x + torch.full((4,), 2.0, dtype=torch.float64).float(), torch.randn(4))
    assert found.code == "NCC_ESPP004"


def test_a_permutation_needs_a_sort_and_is_refused(ruling):
    assert ruling("aten.randperm", lambda x: x + torch.randperm(4), torch.randn(4)).code == "NCC_EVRF001"
