"""The commands on a real cache in a folder; only the fields of a model, which need the exporters, are invented."""

import os
import time

import pytest

from optimum_neuron.compiler.cache import CompileCache
from optimum_neuron.compiler.neff import write_neff
from optimum_neuron.errors import ModelError
from optimum_neuron.exporters import COMPARISONS
from optimum_neuron.simulator import count_file
from optimum_neuron.simulator.work import Work

VERSION = "2.21.0"


def fields_of(**options):
    return {"compiler_version": VERSION, "model_type": "llama", "target": "inf2", "sequence_length": 128, **options}


def produce(path):
    write_neff(
        path, {"ir.json": b"{}"}, name="tiny", target="inf2", core_version=2, compiler_version=VERSION, metadata={}
    )


@pytest.fixture
def url(tmp_path, monkeypatch):
    """A cache with one entry, named by the environment."""
    folder = str(tmp_path / "neffs")
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", folder)
    CompileCache().get_or_compile(fields_of(), produce)
    return folder


@pytest.fixture
def cache(cli, fake_module, url):
    """Run a cache command; fields are made from the options that reach the Python API."""

    def cache_request(model, **options):
        if model == "absent":
            raise ModelError("no such model")
        return CompileCache(), fields_of(**options)

    fake_module("optimum_neuron.exporters", cache_request=cache_request, COMPARISONS=COMPARISONS)
    return lambda *words: cli("neuron", "cache", *words)


def make_incomplete(url):
    (marker,) = (os.path.join(folder, "model.done") for folder, _, files in os.walk(url) if "model.done" in files)
    os.unlink(marker)


def test_status_lists_entries_and_problems(cache, url):
    result = cache("status")
    assert result.code == 0 and result.stdout.startswith(f"{url}: 1 entry, ")
    assert "success" in result.stdout and "sequence_length 128" in result.stdout
    data = cache("status", "--json").json
    assert data["num_entries"] == 1 and data["entries"][0]["fields"] == fields_of()
    assert cache("status", "--quiet").stdout == "1\n"
    make_incomplete(url)
    assert "incomplete" in cache("status").stdout


def test_another_cache_can_be_named(cache, tmp_path):
    empty = str(tmp_path / "empty")
    assert cache("status", "--url", empty).stdout == f"{empty}: 0 entries, 0 B\n"
    assert cache("lookup", "tiny", "--url", empty, "--quiet").stdout == "miss\n"


def test_lookup_hits_with_same_options(cache, url):
    result = cache("lookup", "tiny")
    assert (result.code, result.stderr) == (0, "") and result.stdout.startswith(
        f"tiny in {url}: neuronxcc-{VERSION}/MODULE_"
    )
    data = cache("lookup", "tiny", "--json").json
    assert (data["model"], data["result"]) == ("tiny", "hit") and data["entry"]["reason"].startswith("hit")


def test_lookup_miss_names_explain_command(cache):
    result = cache("lookup", "tiny", "--sequence_length", "256")
    assert result.code == 0 and "not cached" in result.stdout and "sequence_length 256, cached 128" in result.stdout
    assert result.stderr == "next: optimum-cli neuron cache explain tiny --sequence_length 256\n"
    assert cache("lookup", "tiny", "--sequence_length", "256", "--quiet").stdout == "miss\n"


def test_explain_shows_each_differing_field(cache):
    result = cache("explain", "tiny", "--sequence_length", "256")
    assert "miss" in result.stdout.splitlines()[0]
    assert result.stdout.splitlines()[-1].split() == ["sequence_length", "256", "128"]
    (near,) = cache("explain", "tiny", "--sequence_length", "256", "--json").json["nearest"]
    assert near["differences"] == [{"field": "sequence_length", "asked": 256, "cached": 128}]


def test_explain_hit_and_no_similar_entry(cache, tmp_path):
    result = cache("explain", "tiny", "--url", str(tmp_path / "empty"))
    assert result.stdout.endswith("none of the 0 other entries is similar\n")
    assert ": hit, " in cache("explain", "tiny").stdout
    assert cache("explain", "tiny", "--quiet").stdout == "hit\n"


def test_prune_removes_only_unusable_entries_by_default(cache, url):
    assert cache("prune", "--quiet").stdout == "0\n"
    make_incomplete(url)
    assert cache("prune", "--keep_incomplete", "--quiet").stdout == "0\n"
    dry = cache("prune", "--dry_run")
    assert "would free" in dry.stdout and "incomplete" in dry.stdout
    assert len(cache("prune", "--json").json["removed"]) == 1
    assert cache("status", "--quiet").stdout == "0\n"


def test_prune_by_age_and_to_size(cache, monkeypatch):
    assert cache("prune", "--older_than_days", "1", "--quiet").stdout == "0\n"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 2 * 86400)
    assert "days old" in cache("prune", "--older_than_days", "1", "--dry_run").stdout
    assert "freed" in cache("prune", "--max_size_bytes", "0").stdout
    assert cache("status", "--quiet").stdout == "0\n"


def test_known_errors_are_messages(cache):
    result = cache("lookup", "absent")
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: no such model\nnext: optimum-cli neuron models")
    result = cache("status", "--url", "nosuchscheme://x", "--json")
    assert result.code == 1
    assert result.json["error"]["type"] == "CacheError"


@pytest.fixture
def counts(tmp_path, monkeypatch):
    """The file of a model's counts."""
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    file = count_file(tmp_path / "model", "run", {})
    file.write("model", Work(flops=1))
    return file.record.path


def test_status_and_prune_include_records(counts, cache, url):
    assert f"counts of estimates in {counts.parent}: 1 record" in cache("status").stdout
    assert cache("status", "--json").json["records"]["counts"]["num_entries"] == 1
    assert cache("prune", "--json").json["records_removed"] == [] and counts.exists()
    counts.write_text("[")
    assert "1 of other versions or damaged" in cache("status").stdout
    listed = cache("prune", "--dry_run").stdout
    assert f"counts/{counts.name}" in listed and "damaged" in listed and counts.exists()
    assert "records" not in cache("status", "--cache_dir", url, "--json").json
    assert cache("prune", "--cache_dir", url, "--wipe").code == 0 and counts.exists()
    assert cache("prune", "--keep_incomplete", "--quiet").code == 0 and counts.exists()
    pruned = cache("prune", "--wipe", "--json").json
    assert [row["name"] for row in pruned["records_removed"]] == [f"counts/{counts.name}"] and not counts.exists()
    assert pruned["freed_bytes"] >= 1
