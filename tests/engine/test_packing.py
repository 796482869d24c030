from __future__ import annotations

import pytest
import torch

from optimum_neuron.engine import check_positions, plan_packing
from optimum_neuron.errors import ShapeError


def mask(*rows: str) -> torch.Tensor:
    """A mask from rows such as "0111"."""
    return torch.tensor([[int(column) for column in row] for row in rows])


def test_padding_takes_no_slot():
    packing = plan_packing(mask("0011", "1100", "1111"), 0)
    assert packing.lengths_R.tolist() == [2, 2, 4]
    assert packing.positions_RT.tolist() == [[-1, -1, 0, 1], [0, 1, 1, 1], [0, 1, 2, 3]]
    ids = torch.tensor([[9, 9, 1, 2], [3, 4, 9, 9], [5, 6, 7, 8]])
    assert packing.pack(ids, 5).tolist() == [[1, 2, 0, 0, 0], [3, 4, 0, 0, 0], [5, 6, 7, 8, 0]]


def test_logits_return_to_their_columns():
    packing = plan_packing(mask("0011", "1101"), 0)
    assert packing.index_RT.tolist() == [[0, 0, 0, 1], [0, 1, 1, 2]]


def test_new_columns_continue_cache_positions():
    packing = plan_packing(mask("001111", "110011"), 4)
    assert packing.first_R.tolist() == [2, 2]
    assert packing.positions_RT.tolist() == [[2, 3], [2, 3]]
    assert packing.pack(torch.tensor([[5, 6], [7, 8]]), 3).tolist() == [[5, 6, 0], [7, 8, 0]]


def test_new_columns_can_be_padded():
    packing = plan_packing(mask("1101", "1110"), 2)
    assert packing.pack(torch.tensor([[9, 5], [6, 9]]), 2).tolist() == [[5, 0], [6, 0]]
    assert packing.index_RT.tolist() == [[0, 0], [0, 0]]


def test_row_of_padding_only():
    packing = plan_packing(mask("000", "111"), 0)
    assert packing.lengths_R.tolist() == [0, 3]
    assert packing.pack(torch.tensor([[9, 9, 9], [1, 2, 3]]), 3).tolist() == [[0, 0, 0], [1, 2, 3]]
    assert packing.index_RT.tolist() == [[0, 0, 0], [0, 1, 2]]


@pytest.mark.parametrize("positions", [[[0, 1, 2]], [[0, 1, 2], [7, 0, 1]]], ids=["one row for all", "any at padding"])
def test_only_running_positions_are_accepted(positions):
    both = mask("111", "111") if len(positions) == 1 else mask("111", "011")
    check_positions(torch.tensor(positions), plan_packing(both, 0))
    check_positions(None, plan_packing(both, 0))


def test_other_positions_are_refused_with_their_place():
    with pytest.raises(ShapeError) as error:
        check_positions(torch.tensor([[0, 1, 2], [0, 1, 2]]), plan_packing(mask("111", "011"), 0))
    assert error.value.details == {"row": 1, "column": 1, "position": 1, "expected": 0}
