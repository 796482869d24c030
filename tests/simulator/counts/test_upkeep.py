"""Counts on disk are summed up, and removed by version, by age, or all."""

from __future__ import annotations

import os
import time

import pytest

from optimum_neuron.simulator.counts import count_file, counts_status, prune_counts, store
from optimum_neuron.simulator.work import Work


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Counts of this version, of another one, and damaged ones."""
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    (tmp_path / "config.json").write_text("{}")
    own = count_file(tmp_path, "run", {})
    with monkeypatch.context() as patch:
        patch.setattr(store, "versions", lambda: {"source": "older"})
        older = count_file(tmp_path, "run", {})
    damaged = count_file(tmp_path, "run", {"batch_size": 2})
    for file in (own, older, damaged):
        file.write("model", Work(flops=1))
    damaged.path.write_text("[")
    return {"own": own.path, "older": older.path, "damaged": damaged.path}


def test_status_counts_files(files):
    status = counts_status()
    assert (status["num_entries"], status["num_unusable"]) == (3, 2)
    assert status["size_bytes"] == sum(path.stat().st_size for path in files.values())


def test_unusable_files_are_removed(files):
    listed = prune_counts(dry_run=True)
    assert {row["name"] for row in listed} == {f"counts/{files[name].name}" for name in ("older", "damaged")}
    assert all(path.exists() for path in files.values())
    assert prune_counts() == listed
    assert [name for name, path in files.items() if path.exists()] == ["own"]


def test_limits(files):
    assert prune_counts(unusable=False) == []
    old = time.time() - 3 * 86400
    os.utime(files["own"], (old, old))
    assert [row["name"] for row in prune_counts(unusable=False, older_than_days=2)] == [f"counts/{files['own'].name}"]
    assert len(prune_counts(everything=True)) == 2 and counts_status()["num_entries"] == 0
