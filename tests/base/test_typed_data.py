"""Types, ranges and paths of plain data: one table for each file."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import pytest

from optimum_neuron.base.typed_data import Inside, Range, misfits, require_types
from optimum_neuron.errors import ArtifactError

SIZE = Annotated[int, Range(1, 100)]
WHOLE = Annotated[float, Range(1, 100, whole=True)]
INSIDE, NAME = Annotated[str, Inside()], Annotated[str, Inside(is_name=True)]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (5, SIZE),
        (5.0, WHOLE),
        (None, SIZE | None),
        ([1, 2], SIZE | list[SIZE]),
        (3, Annotated[float, Range(0, 5)]),
        ({"a": ["b"]}, dict[str, list[str]]),
        ("left", Literal["left", "right"] | None),
        ("sub/model", INSIDE),
        ("", INSIDE),
        ("a.safetensors", NAME),
        (..., Any),
        ({"unknown": ...}, {"known": int}),
        (float("inf"), float),
    ],
    ids=repr,
)
def test_fitting_values(value, kind):
    assert list(misfits(value, kind)) == []


@pytest.mark.parametrize(
    ("value", "kind", "key"),
    [
        (0, SIZE, "x"),
        (True, SIZE, "x"),
        (5.0, SIZE, "x"),
        (5.5, WHOLE, "x"),
        (float("nan"), WHOLE, "x"),
        (float("nan"), Annotated[float, Range(0, 5)], "x"),
        (float("nan"), float, "x"),
        (float("inf"), Annotated[float, Range(0, 5)], "x"),
        (2**63, int, "x"),
        (1, bool, "x"),
        ("1", SIZE | None, "x"),
        ([1, 0], SIZE | list[SIZE] | None, "x.1"),
        ({"a": [1]}, dict[str, list[str]], "x.a.0"),
        ({1: "a"}, dict[str, str], "x.1"),
        ("up", Literal["left", "right"], "x"),
        (["left"], Literal["left", "right"], "x"),
        *((path, INSIDE, "x") for path in ("../a", "/a", "a/../../b", "a\\b", "c:a", "a\0")),
        *((path, NAME, "x") for path in ("", "a/b", ".", "..")),
        ([], {"a": int}, "x"),
        ({"a": {"b": 0}}, {"a": {"b": SIZE}}, "x.a.b"),
    ],
    ids=repr,
)
def test_misfits(value, kind, key):
    (misfit,) = misfits(value, kind, "x")
    assert misfit.key == key


def test_fields_of_dataclasses():
    @dataclasses.dataclass
    class Row:
        size: int
        names: tuple[str, ...]

    Row.__annotations__ = {"size": SIZE, "names": tuple[str, ...]}
    assert [one.key for one in misfits(Row(size=0, names=("a", 3)), Row)] == ["size", "names.1"]


def test_error_names_file_key_and_value():
    with pytest.raises(ArtifactError) as error:
        require_types({"r": "x" * 1000}, {"r": SIZE}, "adapter_config.json", error=ArtifactError)
    details = error.value.details
    assert (details["file"], details["key"]) == ("adapter_config.json", "r") and len(details["value"]) == 100
    assert "100" in details["expected"]
