"""Records on disk are found by their key, summed up, and removed by version, by age, or all."""

from __future__ import annotations

import os
import time

import pytest

from optimum_neuron.files.records import Records


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def records(home):
    return Records(name="sums", versions=lambda: {"torch": "2"})


@pytest.fixture
def files(records):
    """A record of this version, one of another, and a damaged one."""
    own, damaged = records.find({"batch_size": 1}), records.find({"batch_size": 2})
    older = Records(name="sums", versions=lambda: {"torch": "1"}).find({"batch_size": 1})
    for record in (own, older, damaged):
        assert str(record.path) in record.write({"sum": 1})
    damaged.path.write_text("[")
    return {"own": own.path, "older": older.path, "damaged": damaged.path}


def test_key_is_compared_as_json(records):
    records.find({"shape": (1, 2)}).write({"sum": 3})
    assert records.find({"shape": [1, 2]}).read()["sum"] == 3
    with pytest.raises(TypeError):
        records.find({"shape": object()})


def test_missing_and_damaged_records(records, files):
    with pytest.raises(FileNotFoundError):
        records.find({"batch_size": 9}).read()
    record = records.find({"batch_size": 2})
    for content in (b"", b"[", b"[]", b"{}", b"[" * 100_000, b"\xff", files["own"].read_bytes()):
        record.path.write_bytes(content)
        with pytest.raises(ValueError):
            record.read()
    record.write({"sum": 4})
    assert record.read()["sum"] == 4


def test_folder_that_cannot_be_made_is_a_reason(records, home):
    home.mkdir()
    (home / "sums").write_text("a file in place of the folder")
    assert "not recorded" in records.find({}).write({"sum": 1})


def test_status_counts_files(records, files):
    status = records.status()
    assert (status["num_entries"], status["num_unusable"]) == (3, 2)
    assert status["size_bytes"] == sum(path.stat().st_size for path in files.values())


def test_unusable_files_are_removed(records, files):
    listed = records.prune(dry_run=True)
    assert {row["name"] for row in listed} == {f"sums/{files[name].name}" for name in ("older", "damaged")}
    assert all(path.exists() for path in files.values())
    assert records.prune() == listed
    assert [name for name, path in files.items() if path.exists()] == ["own"]


def test_limits(records, files):
    assert records.prune(unusable=False) == []
    old = time.time() - 3 * 86400
    os.utime(files["own"], (old, old))
    assert [row["name"] for row in records.prune(unusable=False, older_than_days=2)] == [f"sums/{files['own'].name}"]
    assert len(records.prune(everything=True)) == 2 and records.status()["num_entries"] == 0
