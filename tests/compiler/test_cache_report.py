"""The request index, explanations, status and clean-up of a cache in a local folder."""

import json
import os
import shutil
from pathlib import Path

import pytest

from optimum_neuron.compiler.cache import CompileCache, entry_name, report
from optimum_neuron.compiler.cache.locks import claim
from optimum_neuron.compiler.cache.requests import entry_key
from optimum_neuron.errors import ConfigError
from tests.neffs import compile_tiny as produce

FIELDS = {"compiler_version": "2.21", "target": "inf2", "batch_size": 1, "sequence_length": 128, "ir": "a" * 64}


@pytest.fixture
def cache(tmp_path):
    return CompileCache(tmp_path / "cache", spool=tmp_path / "spool")


def entry_folder(cache, fields=FIELDS):
    return os.path.join(cache.url, entry_name(fields))


def test_status_reports_states_sizes_and_ages(cache):
    whole = cache.get_or_compile(FIELDS, produce).path
    broken = cache.get_or_compile({**FIELDS, "batch_size": 2}, produce).path
    os.unlink(broken.parent / "model.done")
    status = json.loads(json.dumps(cache.status()))
    states = {entry["name"]: entry for entry in status["entries"]}
    good = states[entry_name(FIELDS)]
    assert (good["state"], good["fields"], good["key"]) == ("success", FIELDS, entry_key(FIELDS))
    assert good["size_bytes"] == sum(file.stat().st_size for file in whole.parent.iterdir())
    assert good["age_s"] >= 0 and good["summary"].startswith("batch_size 1, sequence_length 128")
    assert states[entry_name({**FIELDS, "batch_size": 2})]["state"] == "incomplete"
    assert status["size_bytes"] == sum(entry["size_bytes"] for entry in status["entries"])


def test_entry_being_compiled_is_locked_and_not_pruned(cache):
    results = {}

    def observe(path):
        results["states"] = [entry["state"] for entry in cache.status()["entries"]]
        results["removed"] = cache.prune(max_size_bytes=0)["removed"]
        produce(path)

    assert not cache.get_or_compile(FIELDS, observe).hit
    assert results == {"states": ["locked"], "removed": []}
    assert cache.lookup(FIELDS).value


def age(cache, fields, days):
    path = Path(entry_folder(cache, fields), "model.done")
    marker = json.loads(path.read_text())
    path.write_text(json.dumps(marker | {"created_unix_s": marker["created_unix_s"] - int(days * 86400)}))


def test_prune_by_age_by_size_and_of_incomplete_entries(cache):
    fields = [{**FIELDS, "batch_size": n} for n in range(4)]
    for days, arguments in zip((40, 20, 10, 0), fields, strict=True):
        cache.get_or_compile(arguments, produce, request=arguments)
        age(cache, arguments, days)
    os.unlink(os.path.join(entry_folder(cache, fields[3]), "model.done"))
    one_bytes = cache.status()["size_bytes"] // 4

    dry = cache.prune(older_than_days=30, max_size_bytes=int(1.5 * one_bytes), dry_run=True)
    reasons = {item["name"]: item["reason"] for item in dry["removed"] if item["name"].startswith("neuronxcc")}
    assert "40.0 days old" in reasons[entry_name(fields[0])] and "oldest" in reasons[entry_name(fields[1])]
    assert "incomplete" in reasons[entry_name(fields[3])] and entry_name(fields[2]) not in reasons
    assert cache.status()["num_entries"] == 4, "a dry run removes nothing"

    result = cache.prune(older_than_days=30, max_size_bytes=int(1.5 * one_bytes))
    assert result["removed"] == dry["removed"] and result["freed_bytes"] == dry["freed_bytes"] > 3 * one_bytes - 1000
    status = cache.status()
    assert [entry["name"] for entry in status["entries"]] == [entry_name(fields[2])]
    assert status["num_requests"] == 1


def test_prune_removes_damaged_and_partial_index_files(cache):
    cache.get_or_compile(FIELDS, produce, request={"model": "m"})
    folder = Path(cache.url, "requests")
    for name in ("0.json", ".1.json.7-ab.tmp", ".2.json.7-ab.tmp"):
        (folder / name).write_text("{")
    os.utime(folder / ".1.json.7-ab.tmp", (0, 0))
    removals = {item["name"]: item["reason"] for item in cache.prune()["removed"]}
    assert removals == {"requests/0.json": "leads to no entry", "requests/.1.json.7-ab.tmp": "left by a killed process"}
    assert cache.find({"model": "m"}).value and cache.status()["num_requests"] == 1


def test_entry_used_during_prune_is_spared(cache):
    path = cache.get_or_compile(FIELDS, produce).path
    storage = report.LocalStorage(path.parents[2])
    with claim(storage.root, entry_name(FIELDS)):
        assert not report._remove(storage, entry_name(FIELDS), "success")
    assert not report._remove(storage, entry_name(FIELDS), "incomplete"), "it was repaired meanwhile"
    assert path.exists()
    assert report._remove(storage, entry_name(FIELDS), "success") and not path.exists()


def test_prune_may_spare_incomplete_entries(cache):
    os.unlink(cache.get_or_compile(FIELDS, produce).path)
    assert cache.prune(incomplete=False)["removed"] == [] and len(cache.prune()["removed"]) == 1


def test_prune_of_missing_cache_does_nothing(cache):
    assert cache.prune(max_size_bytes=0)["removed"] == [] and not os.path.exists(cache.url)


def test_negative_limits_are_refused_together(cache):
    with pytest.raises(ConfigError) as error:
        cache.prune(older_than_days=-1, max_size_bytes=-2)
    assert error.value.details["options"] == {"older_than_days": -1, "max_size_bytes": -2}


def test_request_finds_its_entry_until_removal(cache):
    request = {"model_hash": "m", "batch_size": 1}
    assert cache.find(request).reason == "miss: this request was never compiled"
    path = cache.get_or_compile(FIELDS, produce, request=request).path
    result = cache.find(request)
    assert result.value == path and result.reason.startswith(f"hit: the request leads to {entry_name(FIELDS)}")
    assert cache.find({**request, "batch_size": 2}).value is None
    shutil.rmtree(path.parent)
    assert cache.find(request).value is None and "no such entry" in cache.find(request).reason


def test_request_can_point_to_a_newer_entry(cache):
    cache.get_or_compile(FIELDS, produce, request={"model": "m"})
    other = cache.get_or_compile({**FIELDS, "batch_size": 2}, produce, request={"model": "m"})
    assert cache.find({"model": "m"}).value == other.path


def test_explain_is_plain_data(cache):
    cache.get_or_compile({**FIELDS, "sequence_length": 4096}, produce)
    report = json.loads(json.dumps(cache.explain(FIELDS)))
    assert (report["hit"], report["reason"], report["num_compared"]) == (False, "no such entry", 1)
    assert report["nearest"][0]["differences"] == [{"field": "sequence_length", "asked": 128, "cached": 4096}]
    assert cache.explain({**FIELDS, "sequence_length": 4096})["hit"]
