"""Nested values taken apart and put together."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.errors import ConfigError
from optimum_neuron.tracing.structure import flatten, pick, rebuild, without
from tests.raising import raises

VALUE = {"a": torch.tensor(0), "b": (torch.tensor(1), [torch.tensor(2), {"c": torch.tensor(3)}])}


def test_there_and_back():
    flat = flatten(VALUE, "x")
    assert [tensor.item() for tensor in flat.tensors] == [0, 1, 2, 3]
    assert flat.names == ("x.a", "x.b.0", "x.b.1.0", "x.b.1.1.c")
    assert rebuild(flat.skeleton, flat.tensors) == VALUE
    assert pick(flat.skeleton, VALUE) == list(flat.tensors)


def test_all_non_tensors_are_named():
    with raises(ConfigError, types={"x.0": "int", "x.1.k": "NoneType"}):
        flatten((3, {"k": None}, torch.ones(1)), "x")


@pytest.mark.parametrize(
    ("skeleton", "dropped", "left"),
    [
        ((0, 1), {1}, 0),
        ((0, 1, 2), {1}, (0, 1)),
        ([0, {"a": 1}, 2], {0}, [{"a": 0}, 1]),
        (({"a": 0, "b": 1}, 2, 3), {2, 3}, {"a": 0, "b": 1}),
    ],
)
def test_leaves_can_be_dropped(skeleton, dropped, left):
    assert without(skeleton, dropped) == left
