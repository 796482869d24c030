from __future__ import annotations

import importlib.util

from optimum_neuron.checkpoints import convert
from optimum_neuron.errors import ModelError
from tests.raising import raises


def test_missing_package_is_refused_with_its_command(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with raises(ModelError, package="gguf"):
        convert("gguf", tmp_path, tmp_path / "out")


def test_conversion_output_is_in_the_error(tmp_path, capfd):
    # A converter that imports little. Those of models say what is wrong with their files in the same way.
    (tmp_path / "data.tar.gz").write_bytes(b"no archive")
    with raises(ModelError, converter="vader", files="data.tar.gz") as error:
        convert("vader", tmp_path, tmp_path / "out")
    assert "not a gzip file" in error.value.details["output"]
    assert capfd.readouterr() == ("", "")


def test_hugging_face_folder_is_used_unchanged(tmp_path):
    (tmp_path / "in" / "1_Pooling").mkdir(parents=True)
    (tmp_path / "in" / "1_Pooling" / "config.json").write_text("{}")
    convert("huggingface", tmp_path / "in", tmp_path / "out")
    assert (tmp_path / "out" / "1_Pooling" / "config.json").read_text() == "{}"
