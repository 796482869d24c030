"""Canonical JSON: one spelling per value, and errors for unsupported values."""

from pathlib import Path

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.files.plain_json import canonical_json


def test_key_order_and_sequence_type_do_not_matter():
    assert canonical_json({"b": [1, 2], "a": True}, what="x") == canonical_json({"a": True, "b": (1, 2)}, what="x")


@pytest.mark.parametrize(("left", "right"), [(1, 1.0), (0, False), ("1", 1), (None, "null"), ([], {})])
def test_different_values_have_different_text(left, right):
    assert canonical_json(left, what="x") != canonical_json(right, what="x")


def test_all_unserializable_values_are_listed():
    with pytest.raises(ConfigError) as excinfo:
        canonical_json({"a": {"path": Path("/x")}, "b": [float("nan")], 3: "key", "c": b"bytes"}, what="my fields")
    problems = ["top level has the key 3 of type int", "a.path is a PosixPath", "b[0] is nan", "c is a bytes"]
    assert excinfo.value.details == {"what": "my fields", "problems": problems}
