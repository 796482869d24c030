"""Keys and names of cache entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimum_neuron.compiler.cache import entry_key, entry_name
from optimum_neuron.compiler.cache.requests import parse
from optimum_neuron.errors import ConfigError

FIELDS = {"compiler_version": "2.21.5+abc", "target": "inf2", "shapes": {"input_ids": [1, 128]}}


def test_the_key_depends_on_content_alone():
    shuffled = {"shapes": {"input_ids": (1, 128)}, "target": "inf2", "compiler_version": "2.21.5+abc"}
    assert entry_key(FIELDS) == entry_key(shuffled)
    assert entry_name(FIELDS) == f"neuronxcc-2.21.5+abc/MODULE_{entry_key(FIELDS)[:20]}"


@pytest.mark.parametrize(
    "change",
    [
        {"target": "trn1"},
        {"compiler_version": "2.22"},
        {"shapes": {"input_ids": [1, 129]}},
        {"flag": None},
    ],
)
def test_every_field_decides(change):
    assert entry_key({**FIELDS, **change}) != entry_key(FIELDS)


@pytest.mark.parametrize("version", [None, "", "../../etc", "a/b", ".hidden", 2, "v" * 200])
def test_a_compiler_version_that_cannot_name_a_folder_is_refused(version):
    with pytest.raises(ConfigError) as error:
        entry_key({**FIELDS, "compiler_version": version})
    assert error.value.details["option"] == "compiler_version"


def test_paths_do_not_get_into_a_key():
    with pytest.raises(ConfigError) as error:
        entry_key({**FIELDS, "model": Path("/home/me/model")})
    assert error.value.details["problems"] == ["model is a PosixPath"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"entry": "../../etc", "key": "a"}',
        b'{"entry": "neuronxcc-1/MODULE_x/..", "key": "a"}',
        b'{"entry": 3, "key": "a"}',
        b'{"entry": "neuronxcc-1/MODULE_00000000000000000000"}',
        b"[" * 100_000,
    ],
)
def test_an_index_file_that_leads_outside_is_not_followed(data):
    assert parse(data) is None
