"""Classes of kernels have the constructors that the language guide writes out."""

from __future__ import annotations

import dataclasses

import pytest

from optimum_neuron.nki import language as nl


class Plain(nl.NKIObject):
    rows: int
    is_wide: bool = False
    step = None

    def __post_init__(self):
        self.area = 2 * (self.rows or 0)


class Longer(Plain):
    depth: int = 3


@dataclasses.dataclass(frozen=True)
class Frozen(nl.NKIObject):
    rows: int = 4


class Own(nl.NKIObject):
    rows: int = 1

    def __init__(self, rows):
        self.rows = rows + 1


def test_annotated_names_are_parameters():
    assert (Plain(1).rows, Plain(is_wide=True).rows, Plain().is_wide, Plain(5).area) == (1, None, False, 10)
    assert (Plain(step=3).step, Plain().step) == (3, None)
    assert (Longer(1, True, None, 2).depth, Longer(rows=7).area, Frozen(rows=9).rows, Own(1).rows) == (2, 14, 9, 2)
    with pytest.raises(TypeError):
        Plain(width=3)
    with pytest.raises(TypeError):
        nl.NKIObject(rows=3)
