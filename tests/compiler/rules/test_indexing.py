"""Lookups: counted positions must fit the table they read."""

import pytest
import torch

from optimum_neuron.core import Verdict


def positions(length, offset=0):
    def run(table):
        ids = (torch.arange(length) + offset).unsqueeze(0).expand(1, length)
        return torch.nn.functional.embedding(ids, table)

    return run


@pytest.mark.parametrize(("length", "offset"), [(8, 0), (6, 2)])
def test_positions_that_fit_are_native(ruling, length, offset):
    assert ruling("aten.embedding", positions(length, offset), torch.randn(8, 4)).verdict is Verdict.NATIVE


@pytest.mark.parametrize(("length", "offset", "largest"), [(9, 0, 8), (7, 2, 8)])
def test_positions_past_the_table_are_refused(ruling, length, offset, largest):
    found = ruling("aten.embedding", positions(length, offset), torch.randn(8, 4))
    assert found.code == "NCC_EVRF056"
    assert f"position {largest} " in found.reason
    assert "8 rows" in found.reason


def test_a_range_with_steps_is_followed(check):
    def every_third(count):
        return lambda x: x.index_select(0, torch.arange(0, count, 3))

    assert not check(every_third(8), torch.randn(7, 2)).refused
    assert [r.code for r in check(every_third(8), torch.randn(6, 2)).refused] == ["NCC_EVRF056"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x.gather(1, i),
        lambda x, i: x[i[0]],
        lambda x, i: torch.nn.functional.embedding(i, x),
        lambda x, i: torch.nn.functional.one_hot(i, 8).float() @ x,
    ],
    ids=["gather", "index", "embedding", "one_hot"],
)
def test_positions_that_come_in_are_not_judged(check, function):
    assert not check(function, torch.randn(8, 4), torch.zeros(8, 2, dtype=torch.int64)).refused
