"""Filling the cache, and finding a model's compiled entries, by our names and by Optimum Neuron's."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron.compiler.cache import CompileCache
from optimum_neuron.errors import CacheError, ModelError
from optimum_neuron.exporters import cached_entries, cached_models, fill_cache, hub_cache, main_export, neuron_config
from optimum_neuron.exporters.build import cached_neff
from optimum_neuron.exporters.request import label_of
from optimum_neuron.sources import load_source
from tests.tiny import save_tiny

pytestmark = pytest.mark.usefixtures("compiled_before")
SIZES = {"batch_size": 1, "sequence_length": 16, "optlevel": "1"}


@pytest.fixture
def url(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("CUSTOM_CACHE_REPO", raising=False)
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "neff"))
    return str(tmp_path / "neff")


@pytest.fixture
def tuned_checkpoint(checkpoint, tmp_path):
    """A checkpoint of the same configuration with other weights."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    torch.nn.init.normal_(model.lm_head.weight)
    model.save_pretrained(tmp_path / "tuned")
    return tmp_path / "tuned"


def test_filled_cache_is_hit_by_export(checkpoint, url, tmp_path):
    added = fill_cache(checkpoint, **SIZES)
    assert (added["result"], added["url"]) == ("miss", url)
    assert fill_cache(checkpoint, **SIZES)["result"] == "hit"
    report = main_export(checkpoint, tmp_path / "out", disable_validation=True, **SIZES)
    assert report.to_dict()["cache"]["value"] == "hit"


def test_entries_are_found_by_graph_fields(checkpoint, tuned_checkpoint, url, tmp_path):
    fill_cache(checkpoint, **SIZES)
    fill_cache(checkpoint, **{**SIZES, "sequence_length": 32})
    other = save_tiny(tmp_path / "other", "llama", hidden_size=64)
    for model in (checkpoint, tuned_checkpoint):
        entries = cached_entries(model)
        assert sorted(entry["sequence_length"] for entry in entries) == [16, 32]
        assert all(entry["usable"] and entry["task"] == "text-generation" for entry in entries)
    assert cached_entries(other) == [] and len(cached_entries()) == 2
    assert cached_entries(checkpoint, task="fill-mask") == [] and cached_models() == set()
    with pytest.raises(ModelError):
        cached_entries(tmp_path / "none")


def test_entries_of_other_versions_are_listed_unusable(checkpoint, url, monkeypatch):
    fill_cache(checkpoint, **SIZES)
    monkeypatch.setattr("transformers.__version__", "5.0.0")
    assert [entry["usable"] for entry in cached_entries(checkpoint)] == [False]
    assert hub_cache.select_hub_cached_entries(checkpoint) == []


def test_models_are_listed_by_their_names_and_folders_are_not(checkpoint, url, tmp_path):
    source = dataclasses.replace(load_source(checkpoint), name="org/model")
    assert label_of(source) == "llama/org/model" and label_of(load_source(checkpoint)) is None
    config, target = neuron_config(source, dict(SIZES))
    cached_neff(source, config, target.value, cache=CompileCache(), workdir=tmp_path)
    assert hub_cache.get_hub_cached_models() == {("llama", "org", "model")}


def test_shared_cache_by_names_of_optimum_neuron(checkpoint, url, tmp_path, monkeypatch):
    (tmp_path / "team").mkdir()
    team = str(tmp_path / "team")
    fill_cache(checkpoint, **SIZES)
    assert len(hub_cache.synchronize_hub_cache(cache_repo_id=team)["copied"]) == 1
    assert len(hub_cache.cleanup_local_cache(wipe=True, dry_run=True)["removed"]) == 2
    hub_cache.cleanup_local_cache(wipe=True)
    assert hub_cache.get_local_cache_status()["num_entries"] == 0 and hub_cache.get_hub_cached_entries(checkpoint) == []
    (entry,) = hub_cache.get_hub_cached_entries(checkpoint, task="text-generation", cache_repo_id=team)
    assert entry["url"] == team
    options = {"instance_type": "inf2", "batch_size": 1, "sequence_length": 16, "torch_dtype": torch.float32}
    (selected,) = hub_cache.select_hub_cached_entries(checkpoint, cache_repo_id=team, **options)
    assert selected | {"age_s": entry["age_s"]} == entry
    assert hub_cache.select_hub_cached_entries(checkpoint, cache_repo_id=team, batch_size=2) == []
    with hub_cache.hub_neuronx_cache(cache_repo_id=team):
        assert fill_cache(checkpoint, **SIZES)["result"] == "hit"
    assert selected["tp_degree"] == selected["tensor_parallel_size"] == 1
    assert hub_cache.select_hub_cached_entries(checkpoint, cache_repo_id=team, tensor_parallel_size=2) == []


def test_cache_of_a_block_is_in_another_folder(checkpoint, url, tmp_path):
    own = tmp_path / "own"
    with hub_cache.hub_neuronx_cache(cache_dir=own):
        assert fill_cache(checkpoint, **SIZES)["result"] == "miss"
        assert len(hub_cache.get_hub_cached_entries(checkpoint)) == 1
    assert hub_cache.get_hub_cached_entries(checkpoint) == []
    assert hub_cache.get_local_cache_status(own)["num_entries"] == 1
    with hub_cache.hub_neuronx_cache(cache_dir=str(own)):
        assert fill_cache(checkpoint, **SIZES)["result"] == "hit"


def test_caches_are_synchronized_in_the_background(checkpoint, url, tmp_path):
    (tmp_path / "team").mkdir()
    fill_cache(checkpoint, **SIZES)
    future = hub_cache.synchronize_hub_cache(cache_repo_id=str(tmp_path / "team"), non_blocking=True)
    assert len(future.result(timeout=60)["copied"]) == 1
    with pytest.raises(CacheError):
        hub_cache.synchronize_hub_cache(cache_repo_id="file:///proc/none", non_blocking=True).result(timeout=60)
