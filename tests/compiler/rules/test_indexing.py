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


class Positions(torch.nn.Module):
    """Reads rows at positions that a buffer holds."""

    def __init__(self, positions, persistent=False):
        super().__init__()
        self.register_buffer("positions", torch.tensor(positions), persistent=persistent)

    def forward(self, x):
        return x[self.positions]


READS = {
    "range": lambda x: x[torch.arange(10)],
    "list": lambda x: x[:, [0, 4]],
    "from the end": lambda x: x[torch.tensor([-4])],
    "computed": lambda x: x[torch.arange(4) * 3 // 2 - 1 + torch.tensor([0, 0, 0, 1])],
    "gather": lambda x: x.gather(1, torch.full((3, 1), 4)),
    "select": lambda x: x.index_select(1, torch.tensor([-1])),
    "along": lambda x: x.take_along_dim(torch.tensor([[12]]), None),
    "buffer": Positions([0, 3]),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_known_positions_that_are_not_there_are_refused(check, read):
    assert [r.code for r in check(read, torch.randn(3, 4)).refused] == ["NCC_EVRF056"]


FITS = {
    "range": lambda x: x[torch.arange(3)],
    "from the end": lambda x: x[torch.tensor([-3, 2])],
    "mask and range": lambda x: x[:, None][torch.tensor([1]), None, torch.tensor([0])],
    "buffer": Positions([0, 2]),
    "weight": Positions([0, 3], persistent=True),
    "written": lambda x: x[torch.full((2,), 9).fill_(1)],
}


@pytest.mark.parametrize("read", FITS.values(), ids=FITS)
def test_known_positions_that_fit_and_unknown_ones_are_accepted(check, read):
    assert not check(read, torch.randn(3, 4)).refused


def test_a_constant_that_is_written_in_place_through_a_view_is_not_known(check):
    def written(x):
        positions = torch.full((2, 1), 9)
        positions.view(-1).fill_(1)
        return x[positions + 0]

    assert not check(written, torch.randn(3, 4)).refused
