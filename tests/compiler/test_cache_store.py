"""The cache in a local folder: hits, misses with reasons, repair."""

import errno
import json
import os
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from optimum_neuron.compiler import tally
from optimum_neuron.compiler.cache import CompileCache, entry_name
from optimum_neuron.compiler.cache.requests import entry_key
from optimum_neuron.compiler.neff import open_neff
from optimum_neuron.errors import ArtifactError, CacheError
from tests.neffs import compile_tiny
from tests.raising import raises

FIELDS = {"compiler_version": "2.21", "target": "inf2", "batch_size": 1, "sequence_length": 128, "ir": "a" * 64}


class Producer:
    """Compiles, and counts how often."""

    def __init__(self, content=b"{}"):
        self.content, self.num_calls = content, 0

    def __call__(self, path):
        self.num_calls += 1
        compile_tiny(path, self.content)


@pytest.fixture
def produce():
    return Producer()


@pytest.fixture
def cache(tmp_path):
    return CompileCache(tmp_path / "cache", spool=tmp_path / "spool")


def entry_folder(cache, fields=FIELDS):
    return os.path.join(cache.url, entry_name(fields))


def test_second_request_hits(cache, produce):
    first, second = cache.get_or_compile(FIELDS, produce), cache.get_or_compile(FIELDS, produce)
    assert (first.hit, first.stored, second.hit, second.stored, produce.num_calls) == (False, True, True, True, 1)
    assert first.path == second.path and first.key == entry_key(FIELDS)
    assert second.choice.value == entry_name(FIELDS) and second.choice.reason.startswith("hit: compiled ")
    assert sorted(os.listdir(entry_folder(cache))) == ["fields.json", "model.done", "model.neff"]
    assert not os.path.exists(os.path.join(os.path.dirname(cache.url), "spool"))


def test_compiles_and_hits_are_recorded(cache, produce, tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_COMPILE_RECORDS", str(tmp_path))
    request = {"model": "m"}
    assert cache.find(request).value is None and tally.read(tmp_path) == []
    cache.get_or_compile(FIELDS, produce, request=request)
    cache.find(request)
    cache.get_or_compile(FIELDS, produce)
    assert [(one.kind, one.name, one.was_compiled) for one in tally.read(tmp_path)] == [
        ("neff", entry_name(FIELDS), was_compiled) for was_compiled in (True, False, False)
    ]


def test_miss_names_nearest_entry_and_fields(cache, produce):
    cache.get_or_compile({**FIELDS, "sequence_length": 4096}, produce)
    result = cache.get_or_compile({**FIELDS, "sequence_length": 2048, "ir": "b" * 64}, produce)
    assert result.choice.reason == "miss: no such entry; nearest: sequence_length 2048, cached 4096"
    assert [r.reason for r in result.choice.rejected] == ["sequence_length 2048, cached 4096"]


def test_first_miss_reports_empty_cache(cache, produce):
    assert cache.get_or_compile(FIELDS, produce).choice.reason == "miss: no such entry; the cache is empty"


def test_copied_cache_hits(cache, produce, tmp_path):
    cache.get_or_compile(FIELDS, produce, request={"model": "m"})
    shutil.move(cache.url, tmp_path / "elsewhere")
    moved = CompileCache(f"file://{tmp_path / 'elsewhere'}", spool=tmp_path / "spool")
    assert moved.get_or_compile(FIELDS, produce).hit
    assert moved.find({"model": "m"}).value == tmp_path / "elsewhere" / entry_name(FIELDS) / "model.neff"
    assert produce.num_calls == 1
    for folder, _, names in os.walk(tmp_path / "elsewhere"):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                assert bytes(tmp_path) not in file.read(), name


def test_environment_names_default_cache(monkeypatch, tmp_path, produce):
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "named"))
    CompileCache().get_or_compile(FIELDS, produce)
    assert (tmp_path / "named" / entry_name(FIELDS) / "model.done").is_file()


DAMAGE = [
    *(("model.done", content, "incomplete") for content in ("{}", "[", "null")),
    *(
        ("fields.json", content, "incomplete")
        for content in ("{}", "\0", "[]", json.dumps({**FIELDS, "batch_size": 7}))
    ),
    ("model.done", None, "model.done is missing, so its compile was interrupted"),
    ("model.neff", None, "model.neff is missing"),
    ("fields.json", None, "fields.json is missing"),
]


@pytest.mark.parametrize(("name", "content", "reason"), DAMAGE)
def test_entry_with_damaged_or_missing_file_is_repaired(cache, produce, name, content, reason):
    path = cache.get_or_compile(FIELDS, produce).path.with_name(name)
    path.unlink() if content is None else path.write_text(content)
    assert cache.lookup(FIELDS).value is None
    result = cache.get_or_compile(FIELDS, produce)
    assert not result.hit and reason in result.choice.reason
    assert cache.get_or_compile(FIELDS, produce).hit


def test_corrupt_cached_neff_is_recompiled(cache, produce):
    path = cache.get_or_compile(FIELDS, produce).path
    good = path.read_bytes()
    for offset in random.Random(1).sample(range(len(good)), 30):
        bad = bytearray(good)
        bad[offset] ^= 0x10
        path.write_bytes(bad)
        assert cache.find({"x": 1}).value is None
        result = cache.get_or_compile(FIELDS, produce)
        assert not result.hit and "damaged" in result.choice.reason, offset
        assert path.read_bytes() == good
    assert produce.num_calls == 31


def test_valid_neff_of_another_entry_is_miss(cache, produce, tmp_path):
    path = cache.get_or_compile(FIELDS, produce).path
    Producer(b"[]")(path)
    result = cache.get_or_compile(FIELDS, produce)
    assert not result.hit and "not the one that model.done describes" in result.choice.reason


def test_truncated_neff_is_detected_by_size(cache, produce):
    path = cache.get_or_compile(FIELDS, produce).path
    path.write_bytes(path.read_bytes()[:-1])
    assert "bytes, not the" in cache.lookup(FIELDS).reason


def test_key_prefix_is_a_miss(cache, produce, monkeypatch):
    from optimum_neuron.compiler.cache import build

    cache.get_or_compile(FIELDS, produce)
    result = build.fetch_local(cache._tiers.storage, entry_name(FIELDS), entry_key(FIELDS)[:20] + "0" * 44)
    assert result.path is None and result.reason == "another request has the same short key"


def test_compile_starts_in_empty_folder(cache, produce):
    def failing(path):
        produce(path)
        shutil.copytree(path.parent, path.parents[2] / "copy")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        cache.get_or_compile(FIELDS, failing)
    version, module = entry_name(FIELDS).split("/")
    os.rename(os.path.join(cache.url, "copy"), os.path.join(cache.url, version, f".{module}.building"))
    with raises(ArtifactError, reason="missing"):
        cache.get_or_compile(FIELDS, lambda path: None)


def test_scratch_files_of_compile_are_not_stored(cache, produce):
    def untidy(path):
        path.with_name("scratch").mkdir()
        path.with_name("scratch").joinpath("x").touch()
        path.with_name("log.txt").touch()
        produce(path)

    path = cache.get_or_compile(FIELDS, untidy).path
    assert sorted(os.listdir(path.parent)) == ["fields.json", "model.done", "model.neff"]


def test_failing_compile_is_cleaned_up_and_raises(cache, tmp_path):
    def fail(path):
        path.write_bytes(b"half")
        raise RuntimeError("compiler crashed")

    with pytest.raises(RuntimeError, match="compiler crashed"):
        cache.get_or_compile(FIELDS, fail)
    assert os.listdir(os.path.join(cache.url, "neuronxcc-2.21")) == []
    assert cache.status()["num_entries"] == 0


def test_compile_without_neff_is_refused(cache):
    with raises(ArtifactError, reason="too_short"):
        cache.get_or_compile(FIELDS, lambda path: path.write_bytes(b"no"))
    assert cache.lookup(FIELDS).value is None


def test_mapped_neff_survives_its_replacement(cache, produce):
    path = cache.get_or_compile(FIELDS, produce).path
    view = open_neff(path).read("ir.json")
    cache.prune(max_size_bytes=0)
    assert not path.exists() and bytes(view) == b"{}"


def test_threads_compile_once(cache, produce):
    barrier = threading.Barrier(4)

    def ask(_):
        barrier.wait()
        return cache.get_or_compile(FIELDS, produce)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(ask, range(4)))
    assert produce.num_calls == 1 and sorted(result.hit for result in results) == [False, True, True, True]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere; test_disk_limits mounts a read-only disk")
def test_folder_without_write_permission_serves_hits_and_spools_misses(cache, produce, tmp_path):
    cache.get_or_compile(FIELDS, produce)
    folders = [folder for folder, _, _ in os.walk(cache.url)]
    for folder in folders:
        os.chmod(folder, 0o555)
    try:
        assert cache.get_or_compile(FIELDS, produce).stored
        miss = cache.get_or_compile({**FIELDS, "batch_size": 2}, produce)
        assert not miss.stored and "Permission denied" in miss.choice.reason
        assert miss.path.is_relative_to(tmp_path / "spool")
    finally:
        for folder in folders:
            os.chmod(folder, 0o755)


def test_compiler_disk_full_error_reports_bytes(cache):
    def fill(path):
        path.write_bytes(bytes(1000))
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CacheError) as excinfo:
        cache.get_or_compile(FIELDS, fill)
    assert 1000 <= excinfo.value.details["needed_bytes"] < 1100 and excinfo.value.details["free_bytes"] > 0
    assert cache.status()["num_entries"] == 0
