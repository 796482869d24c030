"""`main_export`: the report, the compile cache, and exports without weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM, env
from optimum_neuron.errors import CacheError, ConfigError, ModelError, WeightsError
from optimum_neuron.exporters import build, main_export
from optimum_neuron.runtime import held_cores
from tests.neffs import small_disk
from tests.runtime.conftest import Worker
from tests.tiny import NUM_BYTE_TOKENS, SHAPES, SMALL, save_tiny, tiny_config

ROOT = Path(__file__).parents[2]
IDS = torch.randint(3, NUM_BYTE_TOKENS, (2, 9), generator=torch.Generator().manual_seed(2))


@pytest.fixture
def captures(monkeypatch):
    """Names of the models that are captured from now on."""
    captured = []
    real = build.compile_source

    def compile_source(source, *arguments, **options):
        captured.append(source.name)
        return real(source, *arguments, **options)

    monkeypatch.setattr(build, "compile_source", compile_source)
    return captured


def cache_of(report) -> tuple[str, str]:
    told = report.to_dict()["cache"]
    return told["value"], told["reason"]


# The report.


def test_the_report_is_plain_data_with_a_reason_for_every_choice(checkpoint, tmp_path):
    told = main_export(checkpoint, tmp_path / "out", **SHAPES).to_dict()
    assert json.loads(json.dumps(told, allow_nan=True)) == told
    assert told["output_dir"] == str(tmp_path / "out") and told["model"] == str(checkpoint) and told["simulated"]
    assert told["size_bytes"] == sum(path.stat().st_size for path in (tmp_path / "out").iterdir())
    for name in ("task", "family", "target", "cache", "host_code", "weights"):
        assert told[name]["value"] and told[name]["reason"], name
    assert [graph["name"] for graph in told["graphs"]] == [
        *("prefill_16", "score_16", "prefill_48", "score_48", "decode_20", "decode_48", "extend_8")
    ]
    assert told["fits_one_core"] and told["hbm_bytes"]["total"] < told["hbm_bytes"]["available"]
    assert set(told["timings_s"]) == {"compile", "host_code", "load", "validate"}


def test_the_core_is_free_again(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    report = main_export(checkpoint, tmp_path / "out", disable_validation=True, **SMALL)
    assert held_cores(report.prepared.loaded.claim.instance) == []


EXPORT = """
import json, sys
from optimum_neuron.exporters import main_export

print(json.dumps(main_export(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3])).to_dict()["cache"]))
"""


def exports_at_once(checkpoint, folder, environ, options):
    """What two processes that export to `a` and `b` at the same time tell of the cache."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
    words = [sys.executable, "-c", EXPORT, str(checkpoint)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen([*words, str(folder / name), json.dumps(options)], env=environ, **pipes) for name in "ab"
    ]
    told = []
    for process in processes:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        told.append(json.loads(output))
    return told


def test_exports_at_once_succeed_while_another_process_holds_every_core(checkpoint, model, tmp_path):
    home = tmp_path / "home"
    # The program is in the cache already, so that the processes spend their time with the core.
    environ = {"OPTIMUM_NEURON_HOME": str(home), "NEURON_COMPILE_CACHE_URL": env.compile_cache_url()}
    holder = Worker(home, "inf2.xlarge", {})
    try:
        assert holder.ask("claim", "trainer", 2) == [0, 1]
        exports_at_once(checkpoint, tmp_path, environ, {**SHAPES, "instance_type": "inf2.xlarge"})
        assert {row["pid"] for row in holder.ask("held")} == {holder.pid}
    finally:
        holder.end()
    found = [NeuronModelForCausalLM.from_pretrained(tmp_path / name)(IDS).logits for name in "ab"]
    assert torch.equal(*found) and torch.equal(found[0], model(IDS).logits)


def test_options_that_end_in_a_refusal_compile_nothing(checkpoint, captures, tmp_path):
    (tmp_path / "file").touch()
    refused = [
        (checkpoint, {}),
        (tmp_path / "file", {}),
        (tmp_path / "out", {"batch_size": 0}),
        (tmp_path / "out", {"disable_neuron_cache": True, "cache_url": str(tmp_path)}),
    ]
    for output, options in refused:
        with pytest.raises(ConfigError):
            main_export(checkpoint, output, **{**SHAPES, **options})
    assert captures == [] and not (tmp_path / "out").exists()


# The compile cache.


def test_a_second_export_hits_and_captures_nothing(checkpoint, captures, tmp_path):
    url = str(tmp_path / "cache")
    value, reason = cache_of(main_export(checkpoint, tmp_path / "a", cache_url=url, **SMALL))
    assert value == "miss" and "the cache is empty" in reason and len(captures) == 1
    value, reason = cache_of(main_export(checkpoint, tmp_path / "b", cache_url=url, **SMALL))
    assert value == "hit" and "the request leads to neuronxcc-" in reason and len(captures) == 1
    assert (tmp_path / "a" / "model.neuron").read_bytes() == (tmp_path / "b" / "model.neuron").read_bytes()

    shorter = {**SMALL, "sequence_length": 40, "decode_buckets": (40,)}
    value, reason = cache_of(main_export(checkpoint, tmp_path / "c", cache_url=url, **shorter))
    assert value == "miss" and "sequence_length 40, cached 48" in reason and len(captures) == 2


def test_fine_tuned_weights_hit_and_give_their_own_results(checkpoint, captures, tmp_path):
    """A program is keyed by the configuration and weights are bound at load, so no older weights can come back."""
    url = str(tmp_path / "cache")
    main_export(checkpoint, tmp_path / "a", cache_url=url, **SMALL)
    tuned = save_tiny(tmp_path / "tuned", "llama", seed=5, vocab_size=NUM_BYTE_TOKENS, use_cache=False)
    assert cache_of(main_export(tuned, tmp_path / "b", cache_url=url, **SMALL))[0] == "hit" and len(captures) == 1
    inlined = {**SMALL, "inline_weights_to_neff": True}
    assert cache_of(main_export(tuned, tmp_path / "c", cache_url=url, **inlined))[0] == "hit"
    with torch.no_grad():
        wanted = AutoModelForCausalLM.from_pretrained(tuned)(IDS).logits
    for name in "bc":
        found = NeuronModelForCausalLM.from_pretrained(tmp_path / name)(IDS).logits
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


def test_the_cache_can_be_switched_off(checkpoint, model, captures, tmp_path):
    report = main_export(checkpoint, tmp_path, disable_neuron_cache=True, disable_validation=True, **SMALL)
    assert cache_of(report) == ("miss", "the cache is switched off") and len(captures) == 1
    work = report.prepared.workdir.path
    assert work.is_dir()
    del report
    assert not work.exists(), "a temporary NEFF goes with the report"


def test_a_cache_that_cannot_be_used_says_so(checkpoint, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match="Not a directory"):
        main_export(checkpoint, tmp_path / "out", cache_url=str(tmp_path / "file"), **SMALL)
    assert not (tmp_path / "out").exists()


def test_a_read_only_cache_keeps_the_neff_on_this_machine(checkpoint, model, tmp_path, monkeypatch):
    with small_disk(tmp_path / "disk", 2**20) as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
        options = {**SMALL, "disable_validation": True}
        value, reason = cache_of(main_export(checkpoint, tmp_path / "a", cache_url=str(disk), **options))
        assert value == "miss" and "not stored in the cache" in reason and "Read-only file system" in reason
        value, reason = cache_of(main_export(checkpoint, tmp_path / "b", cache_url=str(disk), **options))
        assert value == "hit" and f"kept in {tmp_path / 'home'}" in reason


def test_two_processes_at_once_compile_once_and_both_succeed(checkpoint, tmp_path):
    told = exports_at_once(checkpoint, tmp_path, {"OPTIMUM_NEURON_HOME": str(tmp_path / "home")}, SMALL)
    assert sorted(cache["value"] for cache in told) == ["hit", "miss"]
    assert len(list((tmp_path / "home" / "neff").glob("neuronxcc-*/MODULE_*"))) == 1
    found = [NeuronModelForCausalLM.from_pretrained(tmp_path / name)(IDS).logits for name in "ab"]
    assert torch.equal(*found)


# Without weights.


def test_a_configuration_alone_is_compiled_and_cannot_run(checkpoint, model, tmp_path, captures):
    config = tiny_config("llama", vocab_size=NUM_BYTE_TOKENS, architectures=["LlamaForCausalLM"])
    config.save_pretrained(tmp_path / "config")
    report = main_export(tmp_path / "config", tmp_path / "out", **SHAPES)
    assert cache_of(report)[0] == "hit", "the program is that of a checkpoint with weights"
    told = report.to_dict()
    assert told["weights"] is None and told["validation"] == [] and told["host_code"]["value"] == "none"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"config.json", "model.neuron", "neuron_config.json"}
    with pytest.raises(WeightsError, match="exported from a configuration without weights"):
        NeuronModelForCausalLM.from_pretrained(tmp_path / "out")
    with pytest.raises(ConfigError, match="no weights.*main_export"):
        NeuronModelForCausalLM.from_pretrained(tmp_path / "config", export=True, disable_neuron_cache=True, **SHAPES)
    assert captures == [], "it is refused before it is compiled"


def test_an_export_can_be_exported_again_with_other_shapes_if_it_has_its_weights(exported, checkpoint, tmp_path):
    shapes = {**SMALL, "batch_size": 1}
    main_export(exported, tmp_path / "again", **shapes)
    assert NeuronModelForCausalLM.from_pretrained(tmp_path / "again").batch_size == 1
    main_export(checkpoint, tmp_path / "inlined", inline_weights_to_neff=True, disable_validation=True, **SHAPES)
    with pytest.raises(ModelError, match="an export without weights of its own"):
        main_export(tmp_path / "inlined", tmp_path / "out", **shapes)


# Decoders that no family covers.


@pytest.mark.parametrize(
    ("model_type", "overrides", "attention"),
    [
        ("bloom", {"n_layer": 2, "n_head": 4}, "eager"),
        ("bart", {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64}, "sdpa"),
    ],
)
def test_the_report_says_how_transformers_code_attends(model_type, overrides, attention, tmp_path):
    folder = save_tiny(tmp_path / model_type, model_type, **overrides)
    shapes = {"sequence_length": 16, "extend_length": 4, "torch_dtype": "float32", "optlevel": "1"}
    shapes["family"] = "generic"
    told = main_export(folder, tmp_path / "out", **shapes).to_dict()
    assert told["attention"]["value"] == attention and told["attention"]["reason"]
    assert all(error["ok"] for error in told["validation"])
    assert NeuronModelForCausalLM.from_pretrained(tmp_path / "out").describe()["attention"] == told["attention"]
