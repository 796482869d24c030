"""`optimum-cli neuron cache create|set|add|list|synchronize|cleanup`."""

from __future__ import annotations

import logging

import pytest

from optimum_neuron.compiler.cache import CompileCache
from tests.cli.test_cache import fields_of, produce


@pytest.fixture
def cache(cli, tmp_path, monkeypatch):
    """Run a cache command on a machine without a chosen cache."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "neff"))
    return lambda *words: cli("neuron", "cache", *words)


@pytest.fixture
def team(tmp_path):
    return str(tmp_path / "team")


def test_cache_is_created_selected_and_filled(cache, team, monkeypatch):
    assert cache("create", "-n", team, "--quiet").stdout == f"{team}\n"
    result = cache("status", "--json").json["shared"]
    assert result["value"] == team
    CompileCache().get_or_compile(fields_of(), produce)
    dry = cache("synchronize", "--dry-run")
    assert "would copy 1 entry" in dry.stdout
    assert cache("synchronize", "--quiet").stdout == "1\n"
    assert cache("synchronize", "--json").json == {"url": team, "dry_run": False, "copied": [], "num_present": 1}
    assert cache("status", "--url", team, "--quiet").stdout == "1\n"


def test_set_requires_existing_cache(cache, team):
    result = cache("set", team)
    assert result.code == 1 and "cache create" in result.stderr
    result = cache("set", "no-such-name")
    assert result.code == 1 and "org/name" in result.stderr


def test_synchronize_to_named_cache(cache, team, tmp_path):
    CompileCache().get_or_compile(fields_of(), produce)
    assert cache("synchronize").code == 1
    assert cache("synchronize", "--repo_id", team, "--quiet").stdout == "1\n"
    empty = str(tmp_path / "empty")
    assert cache("synchronize", "--repo_id", team, "--cache_dir", empty, "--quiet").stdout == "0\n"


@pytest.mark.full(days=2)
def test_add_then_list(cache, checkpoint):
    words = ("add", "-m", str(checkpoint), "-O1", "--batch_size", "1", "--sequence_length", "16")
    assert cache(*words, "--quiet").stdout == "miss\n"
    assert "hit" in cache(*words).stdout
    result = cache("list", str(checkpoint))
    assert result.stdout.startswith(f"1 compiled configuration for {checkpoint}") and "text-generation" in result.stdout
    (entry,) = cache("list", "--json").json["entries"]
    assert (entry["sequence_length"], entry["usable"]) == (16, True)
    assert cache("list", "--task", "fill-mask", "--quiet").stdout == "0\n"
    lookup = cache("lookup", str(checkpoint), "-O1", "--batch_size", "1", "--sequence_length", "16", "--quiet")
    assert lookup.stdout == "hit\n"


def test_cleanup_is_prune_with_options_of_optimum_neuron(cache, caplog):
    caplog.set_level(logging.INFO, "optimum_neuron.cli.cache")
    CompileCache().get_or_compile(fields_of(), produce)
    assert cache("cleanup", "--all", "--json").json == cache("prune", "--json").json
    assert len(caplog.records) == 1
    assert "of another compiler" in cache("cleanup", "--old-versions", "--dry-run").stdout
    assert len(cache("cleanup", "--wipe", "--json").json["removed"]) == 1
    assert cache("status", "--quiet").stdout == "0\n"


def test_repositories_are_named_by_repo_id(cache, team):
    result = cache("status", "--repo_id", "nothing", "--json")
    assert result.code == 2
    assert cache("status", "--repo_id", team, "--quiet").stdout == "0\n"
