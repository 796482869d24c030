from __future__ import annotations

import json
import os

import pytest

from optimum_neuron.checkpoints import folder as folder_module
from optimum_neuron.checkpoints.folder import MARKER, damaged_files, seal


@pytest.fixture
def sealed_folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text("{}")
    os.chmod(tmp_path / "model.safetensors", 0o600)
    seal(tmp_path, {"name": "x"})
    return tmp_path


def test_sealed_folder_is_valid_and_weights_are_readable(sealed_folder):
    assert damaged_files(sealed_folder) == []
    assert json.loads((sealed_folder / MARKER).read_text())["origin"] == {"name": "x"}
    assert (sealed_folder / "model.safetensors").stat().st_mode == (sealed_folder / MARKER).stat().st_mode


def test_missing_folder_has_no_marker(tmp_path):
    assert damaged_files(tmp_path / "none") == [MARKER]


@pytest.mark.parametrize("marker", ["", "[]", '{"format": 0, "files": {}}', '{"format": 1}'])
def test_unusable_marker_counts_as_missing(sealed_folder, marker):
    (sealed_folder / MARKER).write_text(marker)
    assert damaged_files(sealed_folder) == [MARKER]


def test_missing_and_altered_files_are_named(sealed_folder):
    (sealed_folder / "config.json").unlink()
    (sealed_folder / "1_Pooling" / "config.json").write_text("[]")
    (sealed_folder / "model.safetensors").write_bytes(b"wEights")
    assert damaged_files(sealed_folder) == ["1_Pooling/config.json", "config.json", "model.safetensors"]


def test_large_weights_are_compared_by_size_by_default(sealed_folder, monkeypatch):
    monkeypatch.setattr(folder_module, "_HASHED_AT_ONCE_BYTES", 3)
    (sealed_folder / "model.safetensors").write_bytes(b"wEights")
    assert damaged_files(sealed_folder, hash_weights=False) == []
    assert damaged_files(sealed_folder) == ["model.safetensors"]
    (sealed_folder / "model.safetensors").write_bytes(b"cut")
    assert damaged_files(sealed_folder, hash_weights=False) == ["model.safetensors"]
