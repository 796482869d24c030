"""`save_pretrained`, `replace_weights` and `push_to_hub` of a loaded model."""

from __future__ import annotations

import shutil
from pathlib import Path

import huggingface_hub
import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError, WeightsError
from tests.modeling.common import same
from tests.raising import raises
from tests.tiny import NUM_BYTE_TOKENS, SHAPES, save_tiny

IDS = torch.randint(3, NUM_BYTE_TOKENS, (2, 9), generator=torch.Generator().manual_seed(2))
load = NeuronModelForCausalLM.from_pretrained


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> Path:
    """A checkpoint of the same configuration with other weights."""
    return save_tiny(tmp_path_factory.mktemp("other"), "llama", seed=7, vocab_size=NUM_BYTE_TOKENS)


def reference(folder: Path) -> torch.Tensor:
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(IDS).logits


def test_loaded_export_can_be_saved_elsewhere_but_not_over_itself(export_folder, model, tmp_path):
    loaded_model = load(export_folder)
    loaded_model.save_pretrained(tmp_path)
    assert torch.equal(load(tmp_path)(IDS).logits, model(IDS).logits)
    with raises(ConfigError, output=str(export_folder)):
        loaded_model.save_pretrained(export_folder)


def test_unknown_save_keyword_writes_nothing(model, tmp_path):
    with raises(ConfigError, options=["push_to_hubb"]):
        model.save_pretrained(tmp_path / "out", push_to_hubb=True)
    assert not (tmp_path / "out").exists()


# Other weights for the same program.


def test_replaced_weights_give_results_of_their_checkpoint(export_folder, other, model, tmp_path):
    loaded_model = load(export_folder)
    loaded_model.replace_weights(other)
    same(loaded_model(IDS).logits, reference(other))
    assert (loaded_model(IDS).logits - model(IDS).logits).abs().max() > 0.1
    assert loaded_model.source_folder == other and loaded_model.describe()["validation"] == []
    loaded_model.save_pretrained(tmp_path)
    same(load(tmp_path)(IDS).logits, reference(other))
    same(reference(tmp_path), reference(other))


def test_weights_inside_neff_can_be_replaced(checkpoint, other, tmp_path):
    inlined = load(checkpoint, export=True, inline_weights_to_neff=True, **SHAPES)
    inlined.replace_weights(other)
    inlined.save_pretrained(tmp_path)
    same(load(tmp_path)(IDS).logits, reference(other))


def test_weights_without_config_match_by_name_and_shape(export_folder, other, tmp_path):
    shutil.copy(other / "model.safetensors", tmp_path)
    loaded_model = load(export_folder)
    loaded_model.replace_weights(tmp_path)
    same(loaded_model(IDS).logits, reference(other))


@pytest.mark.parametrize(
    ("model_type", "changes", "difference"),
    [
        ("qwen2", {}, "model_type='qwen2', compiled with 'llama'"),
        ("llama", {"num_hidden_layers": 2}, "num_hidden_layers=2, compiled with 3"),
        # Equal names and shapes: only the configuration shows that the numbers mean something else.
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}}, "rope_parameters="),
        ("llama", {"rms_norm_eps": 0.1}, "rms_norm_eps=0.1, compiled with 1e-06"),
    ],
)
def test_weights_of_another_architecture_are_refused_and_model_still_works(
    export_folder, model, tmp_path, model_type, changes, difference
):
    wrong = save_tiny(tmp_path, model_type, vocab_size=NUM_BYTE_TOKENS, **changes)
    loaded_model = load(export_folder)
    with raises(WeightsError) as error:
        loaded_model.replace_weights(wrong)
    assert error.value.details["problems"][0].startswith(difference)
    assert torch.equal(loaded_model(IDS).logits, model(IDS).logits)


# The Hub.


@pytest.fixture
def uploads(monkeypatch):
    """Files sent to the Hub."""
    sent = []

    def create_repo(self, repo_id, **options):
        sent.append(("create", repo_id, options))

    def upload_folder(self, *, folder_path, **options):
        names = sorted(path.name for path in Path(folder_path).iterdir())
        sent.append(("upload", names, {**options, "token": self.token}))
        return f"https://huggingface.co/{options['repo_id']}/commit/1"

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    return sent


def test_exported_folder_is_pushed_whole(model, tmp_path, uploads):
    address = model.push_to_hub(tmp_path / "out", "acme/pushed", private=True, token="secret", revision="dev")
    assert address == "https://huggingface.co/acme/pushed/commit/1"
    (create, upload) = uploads
    assert create == ("create", "acme/pushed", {"private": True, "exist_ok": True})
    assert upload[1] == sorted(path.name for path in (tmp_path / "out").iterdir())
    files = {"model.neuron", "neuron_config.json", "model.safetensors", "config.json", "tokenizer.json"}
    assert files <= set(upload[1])
    assert upload[2]["revision"] == "dev" and upload[2]["token"] == "secret"
    assert not any(name.startswith(".") for name in upload[1]), "nothing half-written goes up"


def test_push_uploads_the_current_model(checkpoint, other, tmp_path, uploads):
    """A folder with another model, or this one with the previous weights, is rewritten."""
    model = load(checkpoint, export=True, **SHAPES)
    model.save_pretrained(tmp_path / "out")
    written = (tmp_path / "out" / "model.neuron").stat().st_mtime_ns
    model.push_to_hub(tmp_path / "out", "acme/pushed")
    assert (tmp_path / "out" / "model.neuron").stat().st_mtime_ns == written, "it is there already"
    model.replace_weights(other)
    model.push_to_hub(tmp_path / "out", "acme/pushed")
    same(load(tmp_path / "out")(IDS).logits, reference(other))
    assert [kind for kind, *_ in uploads] == ["create", "upload"] * 2


def test_push_to_a_repository_alone_is_that_of_transformers(model, uploads, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with raises(ConfigError, option="repository_id"):
        model.push_to_hub(tmp_path)
    model.push_to_hub("acme/pushed")
    assert [one[2].get("repo_id", one[1]) for one in uploads] == ["acme/pushed"] * 2 and not any(tmp_path.iterdir())


def test_saving_can_push(model, tmp_path, uploads):
    model.save_pretrained(tmp_path / "out", push_to_hub=True, repository_id="acme/pushed")
    assert [kind for kind, *_ in uploads] == ["create", "upload"]
    assert load(tmp_path / "out").batch_size == 2
