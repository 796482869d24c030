"""`from_pretrained` of checkpoints and of exported folders, here and on the Hub."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import huggingface_hub
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ArtifactError, ConfigError, ModelError, TargetMismatchError
from tests.modeling.common import same
from tests.raising import raises
from tests.tiny import NUM_BYTE_TOKENS, SHAPES, SMALL

IDS = torch.randint(3, NUM_BYTE_TOKENS, (2, 9), generator=torch.Generator().manual_seed(2))
load = NeuronModelForCausalLM.from_pretrained


@pytest.fixture
def copy(export_folder, tmp_path) -> Path:
    """An exported folder that a test may damage."""
    return shutil.copytree(export_folder, tmp_path / "copy")


def edit_json(path: Path, **changes) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# Source of the model: a checkpoint or an export.


def test_checkpoint_is_exported_implicitly_with_a_message(checkpoint, caplog):
    with caplog.at_level(logging.WARNING, logger="optimum_neuron"):
        load(checkpoint, **SHAPES)
    assert f"{checkpoint} is a plain checkpoint: it is exported now. Pass export=True to say so" in caplog.text
    caplog.clear()
    assert load(checkpoint, export=True, **SHAPES).describe()["cache"]["value"] == "hit"
    assert caplog.text == ""


def test_model_in_memory_is_for_another_method(original, model):
    for module in (original, torch.nn.Linear(2, 2)):
        with raises(ConfigError, method="from_model"):
            load(module)
    for other in (model, None, 7, {}):
        with raises(ConfigError, type=type(other).__name__, method=None):
            load(other)


def test_export_is_loaded_without_warnings(export_folder, model, caplog):
    with caplog.at_level(logging.WARNING):
        loaded_model = load(export_folder)
    assert caplog.text == ""
    assert torch.equal(loaded_model(IDS).logits, model(IDS).logits)
    facts = loaded_model.describe()
    assert facts["cache"] == {"value": "hit", "reason": "loaded from the exported folder", "rejected": []}
    assert facts["model"] == str(export_folder) and facts["validation"] == model.describe()["validation"]
    assert torch.equal(load(export_folder, export=False)(IDS).logits, model(IDS).logits)


def test_options_of_export_must_fit_folder(checkpoint, export_folder):
    for options in ({"export": True, "atol": 0.1}, {"disable_validation": True}, {"export": True}):
        with raises(ConfigError, options=options):
            load(export_folder, **options)
    assert load(export_folder, disable_validation=False, cache_url=None).batch_size == 2
    with raises(ConfigError, option="export", value=False):
        load(checkpoint, export=False)


@pytest.mark.parametrize("missing", ["neuron_config.json", "model.neuron"])
def test_half_export_is_not_a_checkpoint(copy, missing):
    """It holds a full checkpoint, which would be compiled for minutes with shapes other than the requested ones."""
    (copy / missing).unlink()
    for export in (None, False):
        with raises(ArtifactError, missing=[missing]):
            load(copy, export=export)


def test_all_differing_options_are_listed(export_folder):
    with pytest.raises(ConfigError) as excinfo:
        load(export_folder, batch_size=4, sequence_length=64, prefill_buckets=(16,), torch_dtype=torch.bfloat16)
    assert excinfo.value.details["differences"] == [
        "batch_size=4, compiled with 2",
        "sequence_length=64, compiled with 48",
        "prefill_buckets=(16,), compiled with [16, 48]",
        "torch_dtype='bfloat16', compiled with 'float32'",
    ]
    agreeing = {**SHAPES, "torch_dtype": torch.float32, "prefill_buckets": [16, 48], "optlevel": 1, "task": None}
    assert load(export_folder, **agreeing).batch_size == 2


def test_hosts_effort_and_instance_size_can_change(export_folder):
    facts = load(export_folder, optlevel="1", instance_type="trn1.2xlarge").describe()
    assert facts["target"]["value"] == "trn1" and facts["config"]["instance_type"] == "trn1.2xlarge"
    with raises(ConfigError, option="optlevel", value="4"):
        load(export_folder, optlevel=4)


def test_environment_selects_loading_instance(export_folder, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.24xlarge")
    assert load(export_folder).describe()["config"]["instance_type"] == "inf2.24xlarge"
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "trn2.48xlarge")
    with raises(TargetMismatchError, compiled_for="inf2", target="trn2"):
        load(export_folder)


@pytest.mark.parametrize("folder", ["checkpoint", "export_folder"])
def test_all_unknown_keywords_are_named(request, folder):
    with raises(ConfigError, options=["bacth_size", "sequence_lenght"]):
        load(request.getfixturevalue(folder), bacth_size=2, sequence_lenght=48)


def test_user_configuration_replaces_checkpoints(checkpoint, model):
    config = AutoConfig.from_pretrained(checkpoint)
    config.rope_parameters = {**config.rope_parameters, "rope_theta": 77.0}
    changed = load(checkpoint, config=config, export=True, **SHAPES)
    plain = AutoModelForCausalLM.from_pretrained(checkpoint, config=config)
    with torch.no_grad():
        same(changed(IDS).logits, plain(IDS).logits)
    assert (changed(IDS).logits - model(IDS).logits).abs().max() > 0.01


def test_user_configuration_must_match_export(checkpoint, export_folder):
    config = AutoConfig.from_pretrained(checkpoint)
    config.use_cache, config.attention_dropout = False, 0.5
    load(export_folder, config=config)  # training options do not change the graph
    config.num_hidden_layers = 2
    with raises(ConfigError, differences=["config.num_hidden_layers=2, compiled with 3"]):
        load(export_folder, config=config)


def test_changed_neuron_config_is_detected(copy):
    saved = json.loads((copy / "neuron_config.json").read_text())["neuron"]
    longer = {"batch_size": 3, "sequence_length": 50, "decode_buckets": [50]}
    rows, shorter = {"batch_size": 3}, {"prefill_buckets": [16]}
    for changes, name in ((longer, "decode_50"), (rows, "batch_size=3"), (shorter, "score_48")):
        edit_json(copy / "neuron_config.json", neuron={**saved, **changes})
        with raises(ArtifactError, path=str(copy / "model.neuron")) as error:
            load(copy)
        assert name in " ".join(error.value.details["problems"])


def test_checkpoint_in_several_files(checkpoint, model, tmp_path):
    AutoModelForCausalLM.from_pretrained(checkpoint).save_pretrained(tmp_path / "shards", max_shard_size="40KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    assert torch.equal(load(tmp_path / "shards", export=True, **SHAPES)(IDS).logits, model(IDS).logits)


CODE = """
from transformers import LlamaConfig, LlamaForCausalLM

class OwnConfig(LlamaConfig):
    model_type = "own"

class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""


def test_remote_code_is_copied_and_needs_trust(checkpoint, original, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = shutil.copytree(checkpoint, tmp_path / "own")
    classes = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnForCausalLM"}
    edit_json(folder / "config.json", model_type="own", architectures=["OwnForCausalLM"], auto_map=classes)
    (folder / "own.py").write_text(CODE)
    with raises(ModelError, model=str(folder)) as error:
        load(folder, export=True, **SMALL)
    assert "trust_remote_code=True" in error.value.details["error"], "the words of transformers"
    load(folder, export=True, trust_remote_code=True, **SMALL).save_pretrained(tmp_path / "out")
    with raises(ModelError, model=str(tmp_path / "out")):
        load(tmp_path / "out")
    with torch.no_grad():
        same(load(tmp_path / "out", trust_remote_code=True)(IDS).logits, original(IDS).logits)


def test_checkpoint_with_other_cache_implementation_generates(copy):
    edit_json(copy / "generation_config.json", cache_implementation="static")
    ids = torch.ones(1, 3, dtype=torch.long)
    assert load(copy).generate(ids, attention_mask=ids, max_new_tokens=2, pad_token_id=0).shape[1] <= 5


def test_generation_settings_that_transformers_cannot_read_are_refused(copy):
    edit_json(copy / "generation_config.json", watermarking_config={"color": "green"})
    with raises(ModelError, file=str(copy / "generation_config.json")):
        load(copy)


# Saved files.


def test_transformers_reads_exported_folder(export_folder, original, checkpoint):
    plain = AutoModelForCausalLM.from_pretrained(export_folder)
    with torch.no_grad():
        assert torch.equal(plain(IDS).logits, original(IDS).logits)
    assert {path.name for path in checkpoint.iterdir()} <= {path.name for path in export_folder.iterdir()}


def test_saved_configuration_has_dtype_of_saved_weights(checkpoint, tmp_path):
    half = tmp_path / "half"
    AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16).save_pretrained(half)
    load(half, export=True, **SHAPES).save_pretrained(tmp_path / "out")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert plain.dtype == torch.float32
    with torch.no_grad():
        same(load(tmp_path / "out")(IDS).logits, plain(IDS).logits)


def test_weights_inside_neff(checkpoint, model, tmp_path, recwarn):
    load(checkpoint, export=True, inline_weights_to_neff=True, **SHAPES).save_pretrained(tmp_path / "a")
    assert not list((tmp_path / "a").glob("*.safetensors"))
    loaded_model = load(tmp_path / "a")
    assert torch.equal(loaded_model(IDS).logits, model(IDS).logits)
    assert loaded_model.describe()["weights"]["reason"] == "mapped from inside the NEFF"
    loaded_model.save_pretrained(tmp_path / "b")
    assert torch.equal(load(tmp_path / "b")(IDS).logits, model(IDS).logits)
    assert [str(w.message) for w in recwarn if "not writable" in str(w.message)] == []


# The Hub.


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """Put a folder into a Hub cache under a name, as a download leaves it."""
    cache = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))

    def put(folder: Path, name: str) -> Path:
        repository, commit = cache / f"models--{name.replace('/', '--')}", "0123456789abcdef" * 2 + "01234567"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(commit)
        shutil.copytree(folder, repository / "snapshots" / commit)
        return cache

    return put


def test_name_of_hub_is_found_in_its_cache(hub_cache, checkpoint, export_folder, model):
    hub_cache(checkpoint, "acme/llama")
    hub_cache(export_folder, "acme/llama-neuron")
    assert torch.equal(load("acme/llama", export=True, **SHAPES)(IDS).logits, model(IDS).logits)
    loaded_model = load("acme/llama-neuron")
    assert torch.equal(loaded_model(IDS).logits, model(IDS).logits)
    assert loaded_model.describe()["model"] == loaded_model.loaded.claim.model == "acme/llama-neuron"
    with raises(ModelError, model="acme/llama-neuron"):
        load("acme/llama-neuron", revision="v2")


def test_cache_folder_and_subfolder_can_be_named(hub_cache, checkpoint, monkeypatch, tmp_path):
    cache = hub_cache(checkpoint.parent, "acme/models")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    with raises(ModelError, model="acme/models"):
        load("acme/models", export=True, subfolder="llama", **SHAPES)
    assert load("acme/models", export=True, subfolder="llama", cache_dir=cache, **SHAPES).batch_size == 2
