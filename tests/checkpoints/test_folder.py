from __future__ import annotations

import json
import os

import pytest

from optimum_neuron.checkpoints import MARKER, damaged_files, folder as folder_module, seal


@pytest.fixture
def sealed(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text("{}")
    os.chmod(tmp_path / "model.safetensors", 0o600)
    seal(tmp_path, {"name": "x"})
    return tmp_path


def test_a_sealed_folder_is_whole_and_its_weights_are_as_readable_as_other_files(sealed):
    assert damaged_files(sealed) == []
    assert json.loads((sealed / MARKER).read_text())["origin"] == {"name": "x"}
    assert (sealed / "model.safetensors").stat().st_mode == (sealed / MARKER).stat().st_mode


def test_a_folder_that_is_not_there_has_no_marker(tmp_path):
    assert damaged_files(tmp_path / "none") == [MARKER]


@pytest.mark.parametrize("marker", ["", "[]", '{"format": 0, "files": {}}', '{"format": 1}'])
def test_an_unusable_marker_counts_as_missing(sealed, marker):
    (sealed / MARKER).write_text(marker)
    assert damaged_files(sealed) == [MARKER]


def test_missing_and_altered_files_are_named(sealed):
    (sealed / "config.json").unlink()
    (sealed / "1_Pooling" / "config.json").write_text("[]")
    (sealed / "model.safetensors").write_bytes(b"wEights")
    assert damaged_files(sealed) == ["1_Pooling/config.json", "config.json", "model.safetensors"]


def test_large_weights_are_compared_by_size_unless_asked(sealed, monkeypatch):
    monkeypatch.setattr(folder_module, "_HASHED_AT_ONCE_BYTES", 3)
    (sealed / "model.safetensors").write_bytes(b"wEights")
    assert damaged_files(sealed, hash_weights=False) == []
    assert damaged_files(sealed) == ["model.safetensors"]
    (sealed / "model.safetensors").write_bytes(b"cut")
    assert damaged_files(sealed, hash_weights=False) == ["model.safetensors"]
