"""Sorting is refused; topk of the whole length is the way around."""

import pytest
import torch


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.sort(x).values,
        torch.argsort,
        torch.msort,
        lambda x: torch.kthvalue(x, 2).values,
        lambda x: torch.median(x, dim=-1).values,
        lambda x: torch.quantile(x, 0.5),
    ],
    ids=["sort", "argsort", "msort", "kthvalue", "median", "quantile"],
)
def test_sorting_operators_are_refused(check, function):
    (error,) = check(function, torch.randn(4, 8)).refused
    assert error.code == "NCC_EVRF001" and "topk" in error.remedy


def test_topk_of_whole_length_is_accepted(check):
    assert not check(lambda x: torch.topk(x, x.shape[-1]).values, torch.randn(4, 8)).refused
