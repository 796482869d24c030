"""Libraries in the cache: whole after a power cut, checked before loading, and the user's own."""

from __future__ import annotations

import json
import os
import stat
import tempfile

import pytest

from optimum_neuron.errors import LoweringError
from optimum_neuron.files import shared_objects
from optimum_neuron.files.shared_objects import find, make_folder, publish, require_ours, writable
from tests.unwritable import forbid_writing


@pytest.fixture
def published_objects(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    built, folder = tmp_path / "built.so", tmp_path / "home" / "host" / "cpu"
    built.write_bytes(b"machine code" * 100)
    make_folder(folder)
    records = {folder / "one.json": "one", folder / "two.json": "two"}
    publish(built, folder / "unit.so", records)
    return list(records)


def test_published_library_is_found_by_each_record(published_objects):
    one, two = (find(record) for record in published_objects)
    assert one.library == two.library and (one.function, two.function) == ("one", "two")
    assert one.library.read_bytes() == b"machine code" * 100
    require_ours(one.library)
    assert find(published_objects[0].with_name("absent.json")) is None


def test_files_and_folders_are_private_under_any_umask(tmp_path, monkeypatch):
    before = os.umask(0)
    try:
        monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
        make_folder(tmp_path / "home" / "host" / "cpu")
        (tmp_path / "built.so").write_bytes(b"code")
        publish(tmp_path / "built.so", tmp_path / "home/host/cpu/unit.so", {tmp_path / "home/host/cpu/one.json": ""})
    finally:
        os.umask(before)
    for path in (tmp_path / "home", *(tmp_path / "home").rglob("*")):
        assert path.suffix == ".json" or stat.S_IMODE(path.stat().st_mode) == 0o700, path
    require_ours(tmp_path / "home/host/cpu/unit.so")


def test_library_is_synced_before_its_record(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append("sync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append(os.path.basename(b)), replace(a, b)))
    (tmp_path / "built.so").write_bytes(b"code")
    publish(tmp_path / "built.so", tmp_path / "unit.so", {tmp_path / "one.json": ""})
    assert events == ["sync", "unit.so", "sync", "sync", "one.json", "sync"]


def empty(path):
    path.write_bytes(b"")


def truncated(path):
    path.write_bytes(path.read_bytes()[:-1])


def flipped(path):
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [empty, truncated, flipped, os.unlink])
def test_damaged_library_is_reported_and_removed_with_its_record(published_objects, damage, caplog):
    library = find(published_objects[0]).library
    damage(library)
    assert find(published_objects[0]) is None
    assert str(library) in caplog.text and "compiled again" in caplog.text
    assert not library.exists() and not published_objects[0].exists()
    assert find(published_objects[1]) is None, "its library is gone"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", json.dumps({"library": "../x.so", "sha256": "", "function": ""})]
)
def test_damaged_record_is_removed(published_objects, text, caplog):
    published_objects[0].write_text(text)
    assert find(published_objects[0]) is None and not published_objects[0].exists()
    assert "damaged" in caplog.text and find(published_objects[1]) is not None


@pytest.mark.parametrize("place", ["library", "folder", "home"])
@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_library_writable_by_others_is_not_loaded(published_objects, place, mode):
    library = find(published_objects[0]).library
    path = {"library": library, "folder": library.parent, "home": library.parents[2]}[place]
    path.chmod(mode)
    with pytest.raises(LoweringError) as excinfo:
        require_ours(library)
    assert excinfo.value.details["unsafe"] == {str(path): f"mode {mode:o}"}
    assert f" '{path}'" in excinfo.value.hint
    path.chmod(0o700)
    require_ours(library)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_library_of_another_user_is_not_loaded(published_objects):
    library = find(published_objects[0]).library
    os.chown(library, 12345, -1)
    with pytest.raises(LoweringError) as excinfo:
        require_ours(library)
    assert excinfo.value.details["unsafe"] == {str(library): "owned by user 12345"}
    assert f" {os.geteuid()} '{library}'" in excinfo.value.hint


def test_systems_files_may_be_loaded(published_objects, monkeypatch):
    """A container image has code that root compiled, for users who may not write it."""
    monkeypatch.setattr(shared_objects.os, "geteuid", lambda: 4321)
    library = find(published_objects[0]).library
    if library.stat().st_uid == 0:
        require_ours(library)


def test_unwritable_folder_is_replaced_by_a_private_one(published_objects, tmp_path, monkeypatch, caplog):
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    assert writable(published_objects[0]) == published_objects[0]
    forbid_writing(monkeypatch, tmp_path / "home")
    shared_objects._warn.cache_clear()
    new = published_objects[0].with_name("three.json")
    assert find(new) is None and not caplog.records
    private = {writable(new) for _ in range(2)}.pop()
    assert private.is_relative_to(tmp_path / "temp") and private.name == "three.json"
    assert len(caplog.records) == 1 and str(new.parent) in caplog.text
    publish(tmp_path / "built.so", private.with_name("other.so"), {private: "three"})
    assert find(new).library == private.with_name("other.so")
    require_ours(find(new).library)
    assert find(published_objects[0]).library.parent == published_objects[0].parent, (
        "what was there before is found there"
    )
