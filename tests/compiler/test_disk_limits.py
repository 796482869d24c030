"""Disks that are full or read-only, as the kernel makes them: tiny tmpfs mounts (needs the right to mount)."""

import errno
import subprocess

import pytest

from optimum_neuron.compiler.cache import CompileCache, entry_name
from optimum_neuron.compiler.neff import unpack
from optimum_neuron.errors import ArtifactError, CacheError
from tests.neffs import compile_tiny as produce, small_disk
from tests.raising import raises

FIELDS = {"compiler_version": "2.21", "target": "inf2", "batch_size": 1}
DISK_BYTES = 256 * 1024


@pytest.fixture
def disk(tmp_path):
    """A disk of 256 KiB."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as folder:
        yield folder


def remount(folder, mode):
    subprocess.run(["mount", "-o", f"remount,{mode}", str(folder)], check=True)


def test_neff_disk_full_error_reports_bytes_and_cleans_up(disk):
    with pytest.raises(ArtifactError) as excinfo:
        produce(disk / "m.neff", bytes(DISK_BYTES))
    assert excinfo.value.details["needed_bytes"] > DISK_BYTES == excinfo.value.details["free_bytes"]
    assert list(disk.iterdir()) == []


def test_unpack_on_full_disk_is_cleaned_up(disk, tmp_path):
    produce(tmp_path / "m.neff", bytes(DISK_BYTES))
    with pytest.raises(ArtifactError) as excinfo:
        unpack(tmp_path / "m.neff", disk / "out")
    assert excinfo.value.details["needed_bytes"] > DISK_BYTES and list(disk.iterdir()) == []


def test_cache_on_full_disk_reports_bytes_and_leaves_no_entry(disk, tmp_path):
    cache = CompileCache(disk, spool=tmp_path / "spool")
    with pytest.raises(CacheError) as excinfo:
        cache.get_or_compile(FIELDS, lambda path: produce(path, bytes(DISK_BYTES)))
    assert excinfo.value.details["needed_bytes"] > DISK_BYTES
    assert 0 < excinfo.value.details["free_bytes"] <= DISK_BYTES and "prune" in excinfo.value.hint
    assert cache.status()["entries"] == [] and list((disk / "neuronxcc-2.21").iterdir()) == []
    assert not cache.get_or_compile(FIELDS, produce).hit, "what fits is stored afterwards"


def test_compiler_own_disk_full_error_is_reported_alike(disk, tmp_path):
    def fill(path):
        path.with_name("scratch").write_bytes(bytes(2 * DISK_BYTES))

    with pytest.raises(CacheError) as excinfo:
        CompileCache(disk, spool=tmp_path / "spool").get_or_compile(FIELDS, fill)
    assert excinfo.value.details["needed_bytes"] > DISK_BYTES // 2
    assert isinstance(excinfo.value.__cause__, OSError) and excinfo.value.__cause__.errno == errno.ENOSPC


def test_download_on_full_spool_reports_bytes(disk, tmp_path):
    url = f"memory://{tmp_path.name}"
    CompileCache(url, spool=tmp_path / "a").get_or_compile(FIELDS, lambda path: produce(path, bytes(DISK_BYTES)))
    with pytest.raises(CacheError) as excinfo:
        CompileCache(url, spool=disk / "b").get_or_compile(FIELDS, produce)
    assert excinfo.value.details["needed_bytes"] > DISK_BYTES


def test_read_only_cache_serves_hits_and_keeps_misses_in_spool(disk, tmp_path):
    CompileCache(disk, spool=tmp_path / "spool").get_or_compile(FIELDS, produce, request={"model": "m"})
    remount(disk, "ro")
    cache = CompileCache(disk, spool=tmp_path / "spool")
    hit = cache.get_or_compile(FIELDS, produce, request={"model": "m"})
    assert hit.hit and hit.stored and hit.path == disk / entry_name(FIELDS) / "model.neff"
    assert cache.find({"model": "m"}).value == hit.path and cache.status()["num_entries"] == 1

    other = {**FIELDS, "batch_size": 2}
    miss = cache.get_or_compile(other, produce, request={"model": "n"})
    assert not miss.hit and not miss.stored
    assert miss.path == tmp_path / "spool" / entry_name(other) / "model.neff"
    assert "not stored in the cache" in miss.choice.reason and "Read-only file system" in miss.choice.reason
    assert "batch_size 2, cached 1" in miss.choice.reason
    second = cache.get_or_compile(other, produce)
    assert second.hit and not second.stored and "kept in" in second.choice.reason
    assert cache.find({"model": "n"}).value == miss.path
    with raises(CacheError, cache=str(disk)):
        cache.prune(max_size_bytes=0)


def test_unwritable_home_serves_hits_and_reports_misses(disk, tmp_path):
    CompileCache(disk, spool=disk / "spool").get_or_compile(FIELDS, produce)
    remount(disk, "ro")
    cache = CompileCache(disk, spool=disk / "spool")
    hit = cache.get_or_compile(FIELDS, produce, request={"model": "new"})
    assert hit.hit and "the request could not be recorded" in hit.choice.reason
    with pytest.raises(CacheError) as excinfo:
        cache.get_or_compile({**FIELDS, "batch_size": 2}, produce)
    assert "OPTIMUM_NEURON_HOME" in excinfo.value.hint


def test_incomplete_entry_of_read_only_cache_is_compiled_into_spool(disk, tmp_path):
    path = CompileCache(disk, spool=tmp_path / "spool").get_or_compile(FIELDS, produce).path
    path.with_name("model.done").unlink()
    remount(disk, "ro")
    result = CompileCache(disk, spool=tmp_path / "spool").get_or_compile(FIELDS, produce)
    assert not result.hit and not result.stored and "model.done is missing" in result.choice.reason
