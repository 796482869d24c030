"""Reductions and running sums."""

import pytest
import torch


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.sum(-1), "maps to Reduce"),
        (lambda x: x.mean(-1), "made of Reduce, Div"),
        (lambda x: x.argmax(-1), "maps to AwsNeuronArgMax"),
        (lambda x: x.max(), "maps to Reduce"),
        (lambda x: torch.max(x, x), "maps to Max"),
        (lambda x: x.cumsum(-1), "maps to ReduceWindow"),
    ],
    ids=["sum", "mean", "argmax", "max", "maximum", "cumsum"],
)
def test_accepted(check, function, reason):
    (found,) = check(function, torch.randn(4, 4)).rulings
    assert found.reason == reason


def test_extremum_along_a_dimension_has_positions(ruling):
    found = ruling("aten.min", lambda x: x.min(-1).indices, torch.randn(4, 4))
    assert found.reason == "made of Reduce, AwsNeuronArgMin"


def test_deviation_is_decomposed_by_torch(check):
    report = check(lambda x: x.std(-1), torch.randn(4, 4))
    assert not report.refused
    assert "aten.var" in report.rulings[0].reason


def test_the_most_frequent_value_is_refused(ruling):
    assert ruling("aten.mode", lambda x: x.mode(-1).values, torch.randn(4, 4)).code == "NCC_EVRF001"
