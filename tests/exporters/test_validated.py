"""Comparisons that passed are recorded: hits, everything that makes a miss, and what is never recorded."""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronDiffusionPipeline, NeuronModelForCausalLM
from optimum_neuron.errors import ValidationError
from optimum_neuron.exporters import main_export
from optimum_neuron.exporters.validation import recorded, statistics
from tests.tiny import SMALL
from tests.tiny_pipelines.calls import compile_options
from tests.tiny_pipelines.table import make_pipeline, save_pipeline


@pytest.fixture
def home(tmp_path, monkeypatch, shared_neffs):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def folder(checkpoint, tmp_path):
    """A copy of the Llama, to be changed."""
    return shutil.copytree(checkpoint, tmp_path / "llama")


@pytest.fixture
def loads(monkeypatch):
    """The sources of the reference models that were loaded."""
    sources = []
    load = recorded.load_original
    monkeypatch.setattr(recorded, "load_original", lambda source, **how: sources.append(source) or load(source, **how))
    return sources


def described(model, **options):
    model = NeuronModelForCausalLM.from_pretrained(model, export=True, **SMALL | options)
    report = model.describe()
    model.close()
    return report


def records(home):
    return sorted((home / "validated").glob("*.json"))


def test_second_start_has_the_comparison_of_the_first(home, folder, loads):
    first, second = described(folder), described(folder)
    assert (first["validated"]["value"], second["validated"]["value"]) == ("compared", "recorded")
    assert first["validation"] == second["validation"] and len(first["validation"]) > 3
    assert len(loads) == 1 and len(records(home)) == 1
    assert "compared" in second["validated"]["reason"] and str(home) in first["validated"]["reason"]


def test_export_shares_the_record(home, folder, loads, tmp_path):
    first = described(folder)
    report = main_export(folder, tmp_path / "out", **SMALL).to_dict()
    assert report["validated"]["value"] == "recorded" and report["validation"] == first["validation"]
    saved = NeuronModelForCausalLM.from_pretrained(tmp_path / "out")
    assert saved.describe()["validation"] == first["validation"]
    assert saved.describe()["validated"]["value"] == "recorded" and len(loads) == 1


@pytest.mark.parametrize("change", ["weights", "configuration", "atol", "versions", "cpu"])
def test_everything_that_decides_a_result_is_compared_again(home, folder, loads, monkeypatch, change):
    described(folder)
    options = {}
    if change == "weights":
        weights = load_file(folder / "model.safetensors")
        name = next(name for name, tensor in weights.items() if tensor.dim() == 2)
        weights[name][0, 0] += 1e-6
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    elif change == "configuration":
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"initializer_range": 0.5}))
    elif change == "atol":
        options = {"atol": 0.5}
    elif change == "versions":
        monkeypatch.setattr(statistics, "_versions", lambda: {"torch": "9"})
    else:
        monkeypatch.setattr(recorded, "probe_cpu", lambda: "other")
    assert described(folder, **options)["validated"]["value"] == "compared"
    assert len(loads) == 2 and len(records(home)) == 2


@pytest.mark.full(days=5)
@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"validation": 1}', b"[" * 100_000, b"\xff"])
def test_damaged_record_is_written_again(home, folder, content):
    described(folder)
    (record,) = records(home)
    record.write_bytes(content)
    assert described(folder)["validated"]["value"] == "compared"
    assert described(folder)["validated"]["value"] == "recorded"


@pytest.mark.full(days=6)
@pytest.mark.filterwarnings("ignore")
def test_picture_of_a_pipeline_is_compared_once(home, tmp_path, monkeypatch):
    from optimum_neuron.exporters.diffusion import pipeline as module

    compare = mock.Mock(wraps=module._compare_picture)
    monkeypatch.setattr(module, "_compare_picture", compare)
    folder = save_pipeline(tmp_path / "sd", "sd")
    reports = []
    for _ in range(2):
        with NeuronDiffusionPipeline.from_pretrained(folder, export=True, **compile_options("sd")) as pipe:
            reports.append(pipe.describe())
            assert {part["validated"]["value"] for part in reports[-1]["components"].values()} == {
                reports[-1]["validated"]["value"]
            }
    assert [report["validated"]["value"] for report in reports] == ["compared", "recorded"]
    assert reports[0]["validation"] == reports[1]["validation"] and compare.call_count == 1
    with NeuronDiffusionPipeline.from_pretrained(
        folder, export=True, **compile_options("sd"), vae=make_pipeline("sd").vae
    ) as pipe:
        assert "memory" in pipe.describe()["validated"]["reason"] and compare.call_count == 2


def test_failed_comparison_is_not_recorded(home, folder):
    weights = load_file(folder / "model.safetensors")
    next(tensor for tensor in weights.values() if tensor.dim() == 2).fill_(torch.nan)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for _ in range(2):
        with pytest.raises(ValidationError):
            described(folder)
    assert records(home) == []


@pytest.mark.full(days=4)
def test_weights_in_memory_and_no_cache_are_compared_always(home, folder, loads):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for _ in range(2):
        report = described(folder, disable_neuron_cache=True)
        assert report["validated"]["value"] == "compared" and "cache" in report["validated"]["reason"]
        report = NeuronModelForCausalLM.from_model(model, **SMALL).describe()
        assert report["validated"]["value"] == "compared" and "memory" in report["validated"]["reason"]
    assert len(loads) == 4 and records(home) == []


def test_full_disk_is_a_reason_and_no_error(home, folder, monkeypatch):
    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr("optimum_neuron.files.records.write_bytes", full)
    report = described(folder)
    assert report["validated"]["value"] == "compared" and "no space left" in report["validated"]["reason"]
    assert all(row["ok"] for row in report["validation"])


def test_disabled_validation_says_so(home, folder, loads):
    described(folder)
    report = described(folder, disable_validation=True)
    assert report["validated"]["value"] == "off" and report["validation"] == [] and len(loads) == 1


def test_versions_have_the_source_and_the_libraries_of_references(monkeypatch):
    versions = statistics.COMPARISONS.versions()
    optional = {name for name in ("compressed_tensors", "gguf") if importlib.util.find_spec(name)}
    assert versions.keys() == {"package", "torch", "transformers", "diffusers", *optional}
    monkeypatch.setattr(statistics, "hash_of_sources", lambda *_: "changed source")
    assert statistics._versions.__wrapped__() == {**versions, "package": "changed source"}
