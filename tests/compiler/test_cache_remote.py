"""The cache behind fsspec: a shared one in memory, a read-only one in a zip file, a broken address."""

import contextlib
import os
import shutil
import uuid
import zipfile
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from optimum_neuron.compiler.cache import CompileCache, entry_name, using
from optimum_neuron.errors import CacheError
from tests.neffs import compile_tiny as produce, never

FIELDS = {"compiler_version": "2.21", "target": "inf2", "batch_size": 1, "sequence_length": 128}
NAME = entry_name(FIELDS)
FS = fsspec.filesystem("memory")


@pytest.fixture
def url():
    folder = f"memory://neffs-{uuid.uuid4().hex}"
    yield folder
    if FS.exists(folder):
        FS.rm(folder, recursive=True)


def machine(url, tmp_path, name):
    return CompileCache(url, spool=tmp_path / name)


def test_second_machine_downloads_first_machines_entry(url, tmp_path):
    first = machine(url, tmp_path, "a").get_or_compile(FIELDS, produce, request={"model": "m"})
    assert (first.hit, first.stored) == (False, True)
    assert sorted(Path(p).name for p in FS.ls(f"{url}/{NAME}", detail=False)) == [
        "fields.json",
        "model.done",
        "model.neff",
    ]
    second = machine(url, tmp_path, "b").get_or_compile(FIELDS, never)
    assert second.hit and second.stored and second.path == tmp_path / "b" / NAME / "model.neff"
    assert second.choice.reason.endswith("downloaded") and second.path.read_bytes() == first.path.read_bytes()
    repeat = machine(url, tmp_path, "b").get_or_compile(FIELDS, never)
    assert repeat.choice.reason.endswith("downloaded before")
    assert machine(url, tmp_path, "c").find({"model": "m"}).value == tmp_path / "c" / NAME / "model.neff"


def test_lookup_explain_and_status_download_nothing(url, tmp_path):
    machine(url, tmp_path, "a").get_or_compile(FIELDS, produce)
    other = machine(url, tmp_path, "b")
    assert other.lookup(FIELDS).value == NAME
    miss = other.lookup({**FIELDS, "sequence_length": 512})
    assert miss.value is None and "sequence_length 512, cached 128" in miss.reason
    assert other.explain({**FIELDS, "batch_size": 2})["nearest"][0]["text"] == "batch_size 2, cached 1"
    status = other.status()
    assert (status["url"], status["num_entries"], status["spool"]) == (url, 1, None)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("gone", ["model.done", "model.neff", "fields.json"])
def test_incomplete_remote_entry_is_repaired(url, tmp_path, gone):
    machine(url, tmp_path, "a").get_or_compile(FIELDS, produce)
    FS.rm(f"{url}/{NAME}/{gone}")
    result = machine(url, tmp_path, "b").get_or_compile(FIELDS, produce)
    assert not result.hit and "incomplete" in result.choice.reason
    assert machine(url, tmp_path, "c").get_or_compile(FIELDS, never).hit


def test_incomplete_remote_entry_is_repaired_from_spool_without_compiling(url, tmp_path):
    machine(url, tmp_path, "a").get_or_compile(FIELDS, produce)
    FS.rm(f"{url}/{NAME}", recursive=True)
    result = machine(url, tmp_path, "a").get_or_compile(FIELDS, never)
    assert result.hit and result.stored
    assert machine(url, tmp_path, "b").get_or_compile(FIELDS, never).hit


@pytest.mark.parametrize("offset", [100, 700, 1030, 1600, 3000])
def test_corrupt_remote_neff_is_recompiled(url, tmp_path, offset):
    machine(url, tmp_path, "a").get_or_compile(FIELDS, produce)
    data = bytearray(FS.cat_file(f"{url}/{NAME}/model.neff"))
    data[offset] ^= 1
    FS.pipe_file(f"{url}/{NAME}/model.neff", bytes(data))
    result = machine(url, tmp_path, "b").get_or_compile(FIELDS, produce)
    assert not result.hit and "damaged" in result.choice.reason
    assert machine(url, tmp_path, "c").get_or_compile(FIELDS, never).hit


def test_interrupted_upload_leaves_no_marker(url, tmp_path, monkeypatch):
    machine(url, tmp_path, "a").get_or_compile(FIELDS, produce)
    FS.pipe_file(f"{url}/{NAME}/model.neff", b"damaged".ljust(FS.size(f"{url}/{NAME}/model.neff")))
    upload = MemoryFileSystem.put_file

    def break_off(self, source, place, **options):
        if place.endswith("fields.json"):
            raise ConnectionError("gone")
        upload(self, source, place, **options)

    monkeypatch.setattr(MemoryFileSystem, "put_file", break_off)
    assert not machine(url, tmp_path, "b").get_or_compile(FIELDS, produce).stored
    assert not FS.exists(f"{url}/{NAME}/model.done")


def test_prune_spares_entries_possibly_uploading(url, tmp_path):
    cache = machine(url, tmp_path, "a")
    cache.get_or_compile(FIELDS, produce)
    FS.rm(f"{url}/{NAME}/model.done")
    assert cache.prune()["removed"] == []
    for file in ("model.neff", "fields.json"):
        stored = MemoryFileSystem.store[FS._strip_protocol(f"{url}/{NAME}/{file}")]
        stored.modified = stored.modified.replace(year=2020)
    assert [item["name"] for item in cache.prune()["removed"]] == [NAME] and not FS.exists(f"{url}/{NAME}")


def test_prune_empties_cache_and_spool(url, tmp_path):
    cache = machine(url, tmp_path, "a")
    cache.get_or_compile(FIELDS, produce, request={"model": "m"})
    pruned = cache.prune(max_size_bytes=0)
    assert [item["name"] for item in pruned["removed"]][0] == NAME == pruned["spool_removed"][0]["name"]
    status = cache.status()
    assert (status["num_entries"], status["num_requests"], status["spool"]["num_entries"]) == (0, 0, 0)


@pytest.fixture
def archive(tmp_path):
    """A cache with one entry inside a zip file, which fsspec reads and cannot write."""
    folder = tmp_path / "source"
    CompileCache(folder, spool=tmp_path / "unused").get_or_compile(FIELDS, produce, request={"model": "m"})
    with zipfile.ZipFile(tmp_path / "cache.zip", "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder))
    shutil.rmtree(folder)
    return f"zip://::{tmp_path / 'cache.zip'}"


def test_read_only_remote_cache_serves_hits(archive, tmp_path):
    cache = machine(archive, tmp_path, "a")
    assert cache.get_or_compile(FIELDS, never).hit
    assert cache.find({"model": "m"}).value is not None and cache.status()["num_entries"] == 1


def test_miss_of_read_only_remote_cache_goes_to_spool_with_warning(archive, tmp_path):
    before = (tmp_path / "cache.zip").read_bytes()
    fields = {**FIELDS, "batch_size": 4}
    result = machine(archive, tmp_path, "a").get_or_compile(fields, produce, request={"model": "n"})
    assert (result.hit, result.stored) == (False, False)
    assert "not stored in the cache" in result.choice.reason and str(tmp_path / "a") in result.choice.reason
    second = machine(archive, tmp_path, "a").get_or_compile(fields, never)
    assert (second.hit, second.stored) == (True, False)
    assert machine(archive, tmp_path, "a").find({"model": "n"}).value == result.path
    assert (tmp_path / "cache.zip").read_bytes() == before


@pytest.mark.parametrize("url", ["nosuch://bucket/neffs", "s3nosuch://x"])
def test_unknown_protocol_is_refused_with_advice(url):
    with pytest.raises(CacheError) as excinfo:
        CompileCache(url)
    assert excinfo.value.details["cache"] == url and "s3fs" in excinfo.value.hint


def test_unreachable_cache_is_error_not_miss(tmp_path):
    with pytest.raises(CacheError) as excinfo:
        CompileCache(f"zip://::{tmp_path / 'cache.zip'}").lookup(FIELDS)
    assert "cache.zip" in excinfo.value.details["cache"]


@pytest.mark.parametrize("is_shared", [False, True])
def test_unreadable_remote_cache_is_a_warning_and_a_compile(is_shared, url, tmp_path, monkeypatch, caplog):
    def deny(self, *args, **kwargs):
        raise PermissionError("403 Forbidden")

    for name in ("cat_file", "info", "find", "pipe_file", "put_file"):
        monkeypatch.setattr(MemoryFileSystem, name, deny)
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "local") if is_shared else url)
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    with using(url) if is_shared else contextlib.nullcontext():
        cache = CompileCache()
        assert cache.find({"model": "m"}).value is None
        result = cache.get_or_compile(FIELDS, produce, request={"model": "m"})
        assert (result.hit, result.stored) == (False, is_shared) and "403 Forbidden" in result.choice.reason
        assert cache.find({"model": "m"}).value == result.path
        assert [url in record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [True]
        with pytest.raises(CacheError):
            CompileCache().labels()


def test_failing_upload_keeps_result(url, tmp_path, monkeypatch):
    def deny(self, *args, **kwargs):
        raise PermissionError("Access Denied")

    monkeypatch.setattr(MemoryFileSystem, "put_file", deny)
    result = machine(url, tmp_path, "a").get_or_compile(FIELDS, produce)
    assert (result.hit, result.stored) == (False, False)
    assert "not stored in the cache (Access Denied)" in result.choice.reason
    monkeypatch.undo()
    later = machine(url, tmp_path, "a").get_or_compile(FIELDS, never)
    assert (later.hit, later.stored) == (True, True), "the next run shares what this one could not"
    assert os.listdir(tmp_path / "a" / "neuronxcc-2.21") == [NAME.split("/")[1]]
