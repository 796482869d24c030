"""Types of options: what a table and the fields of a dataclass accept."""

import dataclasses

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.options.value_types import COUNT, NUMBER, ChecksFields, check_types
from tests.raising import raises

TYPES = {"rows": COUNT, "padding": NUMBER, "fused": bool, "names": list[str], "sizes": COUNT | list[COUNT]}
WRONG = [{"rows": 0}, {"rows": True}, {"rows": 2**31}, {"padding": -1}, {"fused": 2}, {"fused": "no"}]
WRONG += [{"names": "lm_head"}, {"names": [1]}, {"sizes": [0]}, {"sizes": 1.0}]


@dataclasses.dataclass
class Fields(ChecksFields):
    rows: COUNT = 1
    names: list[str] | None = None
    other: object = None
    """Of no plain type: it is not checked."""


def test_values_of_their_types_pass():
    for right in ({"rows": 1}, {"padding": 0}, {"fused": 1}, {"names": []}, {"sizes": [1, 2]}, {"rows": None}):
        check_types({**right, "unknown": object()}, TYPES)


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_other_values_are_refused_with_the_name_of_the_option(wrong):
    with raises(ConfigError, option=next(iter(wrong))):
        check_types(wrong, TYPES)


def test_fields_of_plain_types_are_checked():
    assert Fields(rows=2, names=["a"], other=Fields).rows == 2
    with raises(ConfigError, option="rows"):
        Fields(rows="2")
    with raises(ConfigError, option="names"):
        Fields(names=[2])
    with raises(ConfigError, options=["row"]):
        Fields(row=2)
