"""Files of counts: found by everything that they depend on, and never read if damaged."""

from __future__ import annotations

import json

import pytest

from optimum_neuron.simulator import known
from optimum_neuron.simulator.known import count_file
from optimum_neuron.simulator.work import Work

WORK = Work(flops=3, tensor_cycles=1.5)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_written_counts_are_read(folder, home):
    file = count_file(folder, "run", {"batch_size": 2})
    assert file.read(Work)[0] is None
    assert str(file.record.path) in file.write("model", WORK)
    counts, reason = count_file(folder, "run", {"batch_size": 2}).read(Work)
    assert counts == WORK and str(file.record.path) in reason and file.record.path.parent == home / "counts"
    assert b"weights" not in file.record.path.read_bytes()


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "modeling_own.py", "1_Pooling/config.json"])
def test_name_depends_on_each_file_of_the_program(folder, name):
    before = count_file(folder, "run", {}).record.path
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("{}")
    assert count_file(folder, "run", {}).record.path != before


def test_name_depends_on_options_and_versions_but_not_on_weights(folder, monkeypatch):
    before = count_file(folder, "run", {}).record.path
    (folder / "model.safetensors").write_bytes(b"others")
    assert count_file(folder, "run", {}).record.path == before
    assert count_file(folder, "run", {"batch_size": 2}).record.path != before
    assert count_file(folder, "decoder", {}).record.path != before
    monkeypatch.setattr(known, "_versions", lambda: {"source": "changed counter"})
    assert count_file(folder, "run", {}).record.path != before


def test_versions_change_with_the_source(tmp_path, monkeypatch):
    package = tmp_path / "optimum_neuron" / "simulator"
    package.mkdir(parents=True)
    for name in known._SOURCES:
        (tmp_path / "optimum_neuron" / name).mkdir(exist_ok=True)
    monkeypatch.setattr(known, "__file__", str(package / "known.py"))
    hashes = []
    for text in ("FACTOR = 1", "FACTOR = 2"):
        (package / "counter.py").write_text(text)
        hashes.append(known._versions.__wrapped__()["source"])
    assert hashes[0] != hashes[1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: b"[" * 100_000,
        lambda data: b'"text"',
        lambda data: json.dumps(json.loads(data) | {"key": {}}).encode(),
        lambda data: json.dumps(json.loads(data) | {"counts": {"flops": "3"}}).encode(),
    ],
)
def test_damaged_file_counts_as_missing(folder, damage):
    file = count_file(folder, "run", {})
    file.write("model", WORK)
    file.record.path.write_bytes(damage(file.record.path.read_bytes()))
    counts, reason = file.read(Work)
    assert counts is None and "cannot be read" in reason
    file.write("model", WORK)
    assert file.read(Work)[0] == WORK


def test_file_that_cannot_be_written_is_reported(folder, home):
    home.mkdir()
    (home / "counts").write_text("a file in place of the folder")
    file = count_file(folder, "run", {})
    assert "not recorded" in file.write("model", WORK)
