"""Views and casts are free of arithmetic, but not free of dtype rules."""

import pytest
import torch

from optimum_neuron.core import Verdict


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.view(16), "maps to Reshape"),
        (lambda x: x.transpose(0, 1), "maps to Transpose"),
        (lambda x: x.expand(2, 4, 4), "maps to Broadcast"),
        (lambda x: x[1:3], "maps to Slice"),
        (lambda x: x.to(torch.bfloat16), "maps to ConvertElementType"),
        (lambda x: torch.cat([x, x]), "maps to Concatenate"),
    ],
    ids=["view", "transpose", "expand", "slice", "cast", "cat"],
)
def test_native(check, function, reason):
    rulings = [r for r in check(function, torch.randn(4, 4)).rulings if r.rule != "bookkeeping"]
    assert {r.reason for r in rulings} == {reason}
    assert {r.verdict for r in rulings} == {Verdict.NATIVE}


def test_tuple_results_are_bookkeeping(check):
    rulings = check(lambda x: x.chunk(2)[1] + 1, torch.randn(4, 4)).rulings
    assert {r.rule for r in rulings} == {"view", "bookkeeping", "arithmetic"}


def test_a_view_as_complex_numbers_is_refused(check):
    assert {r.code for r in check(lambda x: torch.view_as_complex(x), torch.randn(4, 2)).refused} == {"NCC_EVRF004"}
