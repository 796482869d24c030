"""Real processes on one cache: races, kills, waiting."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from optimum_neuron.compiler.cache import CompileCache, entry_name
from optimum_neuron.errors import CacheError
from tests.raising import raises

ROOT = Path(__file__).parents[2]
FIELDS = {"compiler_version": "2.21", "target": "inf2", "batch_size": 1}

SCRIPT = textwrap.dedent("""
    import json, os, sys, time
    from pathlib import Path
    from optimum_neuron.compiler.cache import CompileCache
    from tests.neffs import compile_tiny

    folder, fields, mode = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]

    def produce(path):
        (folder / f"compiled-by-{os.getpid()}").touch()
        path.write_bytes(b"half of a NEFF")
        while mode == "hang" or len(list(folder.glob("ready-*"))) < 2:
            time.sleep(0.02)
        compile_tiny(path)

    cache = CompileCache(folder / "cache", spool=folder / "spool")
    (folder / f"ready-{os.getpid()}").touch()
    result = cache.get_or_compile(fields, produce)
    print(json.dumps({"hit": result.hit, "path": str(result.path), "reason": result.choice.reason}))
""")


def start(folder, mode):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), json.dumps(FIELDS), mode],
        text=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def wait_for(folder, pattern):
    deadline = time.monotonic() + 60
    while not (results := list(folder.glob(pattern))):
        assert time.monotonic() < deadline, f"no {pattern}"
        time.sleep(0.02)
    return results


@pytest.fixture
def hanging(tmp_path):
    """A process in the middle of a compile."""
    process = start(tmp_path, "hang")
    wait_for(tmp_path, "compiled-by-*")
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_two_processes_compile_once_and_both_succeed(tmp_path):
    processes = [start(tmp_path, "race") for _ in range(2)]
    results = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    assert len(list(tmp_path.glob("compiled-by-*"))) == 1
    assert sorted(result["hit"] for result in results) == [False, True]
    assert results[0]["path"] == results[1]["path"] and not list(tmp_path.glob("cache/*/.*"))


def test_leftovers_of_killed_process_are_repaired(tmp_path, hanging):
    cache = CompileCache(tmp_path / "cache", spool=tmp_path / "spool")
    assert [entry["state"] for entry in cache.status()["entries"]] == ["locked"]
    hanging.kill()
    hanging.wait()
    assert [entry["state"] for entry in cache.status()["entries"]] == ["incomplete"]
    assert cache.lookup(FIELDS).value is None

    (tmp_path / "ready-1").touch()
    repair = start(tmp_path, "race")
    result = json.loads(repair.communicate(timeout=120)[0])
    assert not result["hit"]
    assert f"process {hanging.pid} on" in result["reason"] and "ended in the middle" in result["reason"]
    assert cache.lookup(FIELDS).value == entry_name(FIELDS)
    assert cache.get_or_compile(FIELDS, lambda path: pytest.fail("compiled twice")).hit
    assert not list(tmp_path.glob("cache/*/.*"))


def test_prune_removes_leftovers_of_killed_process(tmp_path, hanging):
    cache = CompileCache(tmp_path / "cache", spool=tmp_path / "spool")
    assert cache.prune()["removed"] == []
    hanging.kill()
    hanging.wait()
    assert [item["name"] for item in cache.prune()["removed"]] == [entry_name(FIELDS)]
    assert cache.status()["num_entries"] == 0


def test_lock_timeout_names_compiling_process(tmp_path, hanging):
    cache = CompileCache(tmp_path / "cache", spool=tmp_path / "spool", lock_timeout_s=0.2)
    with raises(CacheError, entry=entry_name(FIELDS), timeout_s=0.2) as error:
        cache.get_or_compile(FIELDS, lambda path: pytest.fail("compiled twice"))
    assert error.value.details["owner"].startswith(f"process {hanging.pid} on ")
