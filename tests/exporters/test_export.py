"""`main_export`: the report, the compile cache, and exports without weights."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.base import env
from optimum_neuron.errors import CacheError, ConfigError, ModelError, WeightsError
from optimum_neuron.exporters import build, main_export
from optimum_neuron.runtime import held_cores
from tests import warm
from tests.neffs import small_disk
from tests.raising import raises
from tests.runtime.conftest import Worker
from tests.tiny import NUM_BYTE_TOKENS, SHAPES, SMALL, save_tiny, tiny_config

pytestmark = pytest.mark.usefixtures("compiled_before")
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
    data = report.to_dict()["cache"]
    return data["value"], data["reason"]


# The report.


def test_report_is_plain_data_with_reason_for_every_choice(checkpoint, tmp_path):
    data = main_export(checkpoint, tmp_path / "out", **SHAPES).to_dict()
    assert json.loads(json.dumps(data, allow_nan=True)) == data
    assert data["output_dir"] == str(tmp_path / "out") and data["model"] == str(checkpoint) and data["simulated"]
    assert data["size_bytes"] == sum(path.stat().st_size for path in (tmp_path / "out").iterdir())
    for name in ("task", "family", "target", "cache", "host_code", "weights"):
        assert data[name]["value"] and data[name]["reason"], name
    assert [graph["name"] for graph in data["graphs"]] == [
        *("prefill_16", "score_16", "prefill_48", "score_48", "decode_20", "decode_48", "extend_8")
    ]
    assert data["fits_one_core"] and data["hbm_bytes"]["total"] < data["hbm_bytes"]["available"]
    assert set(data["timings_s"]) == {"compile", "host_code", "load", "validate"}


def test_core_is_free_again(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    report = main_export(checkpoint, tmp_path / "out", disable_validation=True, **SMALL)
    assert held_cores(report.prepared.loaded.claim.instance) == []


EXPORT = """
import json, sys
from optimum_neuron.exporters import main_export

print(json.dumps(main_export(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3])).to_dict()["cache"]))
"""


def exports_at_once(checkpoint, folder, environ, options):
    """Cache decisions of two processes that export to `a` and `b` at the same time."""
    words, environ = ("-c", EXPORT, str(checkpoint)), {**os.environ, **environ}
    processes = [warm.Program(*words, str(folder / name), json.dumps(options), env=environ) for name in "ab"]
    messages = []
    for process in processes:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        messages.append(json.loads(output))
    return messages


def test_concurrent_exports_succeed_while_all_cores_are_busy(checkpoint, model, tmp_path):
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
    result = [NeuronModelForCausalLM.from_pretrained(tmp_path / name)(IDS).logits for name in "ab"]
    assert torch.equal(*result) and torch.equal(result[0], model(IDS).logits)


def test_rejected_options_compile_nothing(checkpoint, captures, tmp_path):
    (tmp_path / "file").touch()
    error = [
        (checkpoint, {}),
        (tmp_path / "file", {}),
        (tmp_path / "out", {"batch_size": 0}),
        (tmp_path / "out", {"disable_neuron_cache": True, "cache_url": str(tmp_path)}),
    ]
    for output, options in error:
        with pytest.raises(ConfigError):
            main_export(checkpoint, output, **{**SHAPES, **options})
    assert captures == [] and not (tmp_path / "out").exists()


# The compile cache.


def test_second_export_hits_without_capture(checkpoint, captures, tmp_path):
    url = str(tmp_path / "cache")
    value, reason = cache_of(main_export(checkpoint, tmp_path / "a", cache_url=url, **SMALL))
    assert value == "miss" and "the cache is empty" in reason and len(captures) == 1
    value, reason = cache_of(main_export(checkpoint, tmp_path / "b", cache_url=url, **SMALL))
    assert value == "hit" and "the request leads to neuronxcc-" in reason and len(captures) == 1
    assert (tmp_path / "a" / "model.neuron").read_bytes() == (tmp_path / "b" / "model.neuron").read_bytes()

    shorter = {**SMALL, "sequence_length": 40, "decode_buckets": (40,)}
    value, reason = cache_of(main_export(checkpoint, tmp_path / "c", cache_url=url, **shorter))
    assert value == "miss" and "sequence_length 40, cached 48" in reason and len(captures) == 2


def test_fine_tuned_weights_hit_and_give_their_results(checkpoint, captures, tmp_path):
    """A program is keyed by the configuration and weights are bound at load, so no older weights can come back."""
    url = str(tmp_path / "cache")
    main_export(checkpoint, tmp_path / "a", cache_url=url, **SMALL)
    adapter_model = save_tiny(tmp_path / "tuned", "llama", seed=5, vocab_size=NUM_BYTE_TOKENS, use_cache=False)
    assert (
        cache_of(main_export(adapter_model, tmp_path / "b", cache_url=url, **SMALL))[0] == "hit" and len(captures) == 1
    )
    inlined = {**SMALL, "inline_weights_to_neff": True}
    assert cache_of(main_export(adapter_model, tmp_path / "c", cache_url=url, **inlined))[0] == "hit"
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(adapter_model)(IDS).logits
    for name in "bc":
        actual = NeuronModelForCausalLM.from_pretrained(tmp_path / name)(IDS).logits
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


def test_cache_can_be_switched_off(checkpoint, model, captures, tmp_path):
    report = main_export(checkpoint, tmp_path, disable_neuron_cache=True, disable_validation=True, **SMALL)
    assert cache_of(report) == ("miss", "the cache is switched off") and len(captures) == 1
    work = report.prepared.workdir.path
    assert work.is_dir()
    del report
    assert not work.exists(), "a temporary NEFF goes with the report"


def test_unusable_cache_is_reported(checkpoint, tmp_path):
    (tmp_path / "file").touch()
    with raises(CacheError, cache=str(tmp_path / "file")):
        main_export(checkpoint, tmp_path / "out", cache_url=str(tmp_path / "file"), **SMALL)
    assert not (tmp_path / "out").exists()


def test_read_only_cache_keeps_neff_on_this_machine(checkpoint, model, tmp_path, monkeypatch):
    with small_disk(tmp_path / "disk", 2**20) as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
        options = {**SMALL, "disable_validation": True}
        value, reason = cache_of(main_export(checkpoint, tmp_path / "a", cache_url=str(disk), **options))
        assert value == "miss" and "not stored in the cache" in reason and "Read-only file system" in reason
        value, reason = cache_of(main_export(checkpoint, tmp_path / "b", cache_url=str(disk), **options))
        assert value == "hit" and f"kept in {tmp_path / 'home'}" in reason


def test_concurrent_processes_compile_once(checkpoint, tmp_path):
    decisions = exports_at_once(checkpoint, tmp_path, {"OPTIMUM_NEURON_HOME": str(tmp_path / "home")}, SMALL)
    assert sorted(cache["value"] for cache in decisions) == ["hit", "miss"]
    assert len(list((tmp_path / "home" / "neff").glob("neuronxcc-*/MODULE_*"))) == 1
    result = [NeuronModelForCausalLM.from_pretrained(tmp_path / name)(IDS).logits for name in "ab"]
    assert torch.equal(*result)


# Without weights.


def test_configuration_alone_is_compiled_and_cannot_run(checkpoint, model, tmp_path, captures):
    config = tiny_config("llama", vocab_size=NUM_BYTE_TOKENS, architectures=["LlamaForCausalLM"])
    config.save_pretrained(tmp_path / "config")
    report = main_export(tmp_path / "config", tmp_path / "out", **SHAPES)
    assert cache_of(report)[0] == "hit", "the program is that of a checkpoint with weights"
    data = report.to_dict()
    assert data["weights"] is None and data["validation"] == [] and data["host_code"]["value"] == "none"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"config.json", "model.neuron", "neuron_config.json"}
    with raises(WeightsError, folder=str(tmp_path / "out")):
        NeuronModelForCausalLM.from_pretrained(tmp_path / "out")
    with raises(ConfigError, folder=str(tmp_path / "config")):
        NeuronModelForCausalLM.from_pretrained(tmp_path / "config", export=True, disable_neuron_cache=True, **SHAPES)
    assert captures == [], "it is refused before it is compiled"


def test_export_can_be_re_exported_if_it_has_weights(export_folder, checkpoint, tmp_path):
    shapes = {**SMALL, "batch_size": 1}
    main_export(export_folder, tmp_path / "again", **shapes)
    assert NeuronModelForCausalLM.from_pretrained(tmp_path / "again").batch_size == 1
    main_export(checkpoint, tmp_path / "inlined", inline_weights_to_neff=True, disable_validation=True, **SHAPES)
    with raises(ModelError, folder=str(tmp_path / "inlined")):
        main_export(tmp_path / "inlined", tmp_path / "out", **shapes)


# Decoders that no family covers.


@pytest.mark.full(days=2)
@pytest.mark.parametrize(
    ("model_type", "overrides", "attention"),
    [
        ("bloom", {"n_layer": 2, "n_head": 4}, "eager"),
        ("bart", {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64}, "sdpa"),
    ],
)
def test_report_names_attention_implementation(model_type, overrides, attention, tmp_path):
    folder = save_tiny(tmp_path / model_type, model_type, **overrides)
    shapes = {"sequence_length": 16, "extend_length": 4, "torch_dtype": "float32", "optlevel": "1"}
    shapes["family"] = "generic"
    data = main_export(folder, tmp_path / "out", **shapes).to_dict()
    assert data["attention"]["value"] == attention and data["attention"]["reason"]
    assert all(error["ok"] for error in data["validation"])
    assert NeuronModelForCausalLM.from_pretrained(tmp_path / "out").describe()["attention"] == data["attention"]
