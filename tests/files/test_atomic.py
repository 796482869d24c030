"""Atomic files: whole or not at all."""

from __future__ import annotations

import errno

import pytest

from optimum_neuron.errors import ArtifactError, CacheError
from optimum_neuron.files.atomic import is_disk_full, replacing, write_bytes
from tests.raising import raises


def test_failed_write_keeps_old_file(tmp_path):
    write_bytes(tmp_path / "a", b"old", error=CacheError)
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "a", needed_bytes=3, error=CacheError) as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_cache_writes_skip_fsync(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", synced.append)
    write_bytes(tmp_path / "a", b"x", error=CacheError, durable=False)
    assert (tmp_path / "a").read_bytes() == b"x" and synced == []
    write_bytes(tmp_path / "a", b"y", error=CacheError)
    assert len(synced) == 2  # the file and its folder


def test_missing_folder_is_reported_with_callers_error(tmp_path):
    with raises(ArtifactError, path=str(tmp_path / "no" / "a")):
        write_bytes(tmp_path / "no" / "a", b"x", error=ArtifactError)


def test_full_disk_error_reports_needed_and_free_bytes(tmp_path):
    with pytest.raises(CacheError) as excinfo, replacing(tmp_path / "a", needed_bytes=12_345, error=CacheError) as file:
        file.write(b"part")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert excinfo.value.details["needed_bytes"] == 12_345
    assert excinfo.value.details["free_bytes"] > 0
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_recognized_through_wrapping_errors():
    try:
        try:
            raise OSError(errno.ENOSPC, "full")
        except OSError as error:
            raise ArtifactError("wrapped") from error
    except ArtifactError as wrapped:
        assert is_disk_full(wrapped)
    assert not is_disk_full(OSError(errno.EACCES, "denied"))
