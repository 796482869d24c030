from __future__ import annotations

import fnmatch
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM, check_model
from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.exporters import cache_request
from optimum_neuron.kinds import kind_of
from optimum_neuron.sources import TASKS, ModelSource, find_folder, infer_task, load_source, other_tasks, read_config
from optimum_neuron.sources.source import served_task
from optimum_neuron.sources.tasks import SYNONYMS
from tests.encoders import save_tiny_encoder, tiny_encoder_config
from tests.raising import raises
from tests.tiny import SMALL, save_tiny, tiny_config, write_config


def test_folder_is_found_and_read_without_its_weights(checkpoint, monkeypatch):
    source = load_source(checkpoint)
    assert (source.name, source.folder, source.revision) == (str(checkpoint), checkpoint, None)
    assert source.config.model_type == "llama" and source.has_weights
    assert load_source(checkpoint.parent, subfolder="llama").folder == checkpoint
    monkeypatch.setenv("HOME", str(checkpoint.parent))
    assert find_folder("~/llama") == checkpoint


def test_configuration_alone_is_source_without_weights(tmp_path):
    tiny_config("llama").save_pretrained(tmp_path)
    assert not load_source(tmp_path).has_weights


def test_missing_folder_names_nearest_one(tmp_path):
    (tmp_path / "my-llama").mkdir()
    for name in (str(tmp_path / "my-lama"), "./nowhere", "/nowhere/at/all", "a/b/c"):
        with raises(ModelError, model=name, reason="missing") as error:
            find_folder(name)
        assert ("'my-llama'" in error.value.message) == name.endswith("my-lama")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with raises(ModelError, model=str(tmp_path / "model.safetensors"), reason="file"):
        find_folder(tmp_path / "model.safetensors")


def test_tied_checkpoint_with_its_own_head_is_untied_as_in_transformers(tmp_path, caplog):
    folder = save_tiny(tmp_path, "llama", tie_word_embeddings=False)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"tie_word_embeddings": True}))
    expected = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert load_source(folder).config.tie_word_embeddings is False and "lm_head.weight" in caplog.text
    ids = torch.arange(3, 12)[None]
    model = NeuronModelForCausalLM.from_pretrained(folder, export=True, **SMALL, disable_validation=True)
    torch.testing.assert_close(model(ids).logits, expected(ids).logits, atol=1e-4, rtol=1e-4)
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}, folder / "model.safetensors")
    assert load_source(folder).config.tie_word_embeddings is True


@pytest.mark.parametrize("name", ["no-such-model", "acme/no-such-model", "bad name!", "--"])
def test_unknown_name(name):
    with raises(ModelError, model=name) as error:
        find_folder(name)
    assert error.value.details["error"].partition(":")[0] in ("LocalEntryNotFoundError", "HFValidationError")


def test_mistyped_name_of_catalogue_and_mistyped_option_are_recognized():
    with raises(ModelError, model="minlm") as error:
        find_folder("minlm")
    assert "'minilm'" in error.value.message
    with raises(ConfigError, options=["revison"]):
        find_folder("smollm2", revison="main")


def test_folder_without_configuration(tmp_path):
    with raises(ModelError, model=str(tmp_path), reason="empty"):
        read_config(tmp_path)
    (tmp_path / "readme").touch()
    with raises(ModelError, model=str(tmp_path), reason="no_config"):
        read_config(tmp_path)
    with raises(ModelError, model=str(tmp_path / "missing"), reason="missing"):
        read_config(tmp_path / "missing")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{not json", "JSONDecodeError"),
        (b"[1, 2]", "a JSON list"),
        (b"null", "a JSON NoneType"),
        (b"\xff\xfe\x00", "UnicodeDecodeError"),
    ],
)
def test_unreadable_configuration(tmp_path, content, expected):
    (tmp_path / "config.json").write_bytes(content)
    with raises(ModelError, model=str(tmp_path)) as error:
        read_config(tmp_path)
    assert expected in error.value.details["error"]


def test_size_that_is_a_text(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "hidden_size": "large"}')
    with raises(ModelError, file=str(path), key="hidden_size", value="large"):
        read_config(tmp_path)


@pytest.mark.parametrize(("content", "model_type"), [(b"{}", None), (b'{"model_type": "lama"}', "lama")])
def test_configuration_of_unknown_architecture(tmp_path, content, model_type):
    (tmp_path / "config.json").write_bytes(content)
    with raises(ModelError, folder=str(tmp_path), model_type=model_type):
        read_config(tmp_path)


def test_remote_code_needs_trust(tmp_path):
    folder = write_config(tmp_path, model_type="own", auto_map={"AutoConfig": "own.OwnConfig"})
    (folder / "own.py").write_text("raise SystemExit('the code of a checkpoint ran')")
    with raises(ModelError, model=str(folder)) as error:
        read_config(folder)
    assert "trust_remote_code=True" in error.value.details["error"], "the words of transformers"


@pytest.mark.parametrize("architectures", [["LlamaForCausalLM"], ["Other", "GPT2LMHeadModel"]])
def test_task_follows_architectures(architectures):
    choice = infer_task(tiny_config("llama", architectures=architectures))
    assert choice.value == "text-generation" and choice.reason == f"config.architectures has {architectures[-1]}"


def test_task_can_be_named_for_configuration_without_architectures():
    config = tiny_config("llama")
    assert infer_task(config, "text-generation").reason == "requested by name"
    with raises(ModelError, model_type="llama") as error:
        infer_task(config)
    assert "text-generation" in error.value.details["tasks"]


@pytest.mark.parametrize(
    ("model_type", "architecture", "others"),
    [
        ("pp_ocrv5_mobile_rec", "PPOCRV5MobileRecForTextRecognition", ["feature-extraction"]),
        ("slanet", "SLANetForTableRecognition", []),
    ],
)
def test_unsupported_head_points_to_trace(model_type, architecture, others):
    with raises(ModelError, task=None, other_tasks=others, model_type=model_type):
        infer_task(CONFIG_MAPPING[model_type](architectures=[architecture]))


@pytest.mark.parametrize("task", ["text-recognition", "table-recognition", "mask-generation"])
def test_unsupported_transformers_task_points_to_trace(task):
    with raises(ModelError, task=task, other_tasks=[]):
        infer_task(CONFIG_MAPPING["pp_ocrv5_mobile_rec"](), task)


def test_unknown_task_names_all():
    with raises(ModelError, task="text-generatoin", choices=list(TASKS)):
        infer_task(tiny_config("llama"), "text-generatoin")


@pytest.mark.parametrize(
    ("model_type", "architecture"),
    [
        ("bert", "BertModel"),
        ("bart", "BartForConditionalGeneration"),
        ("vit", "ViTForImageClassification"),
        ("t5", "T5ForConditionalGeneration"),
    ],
)
def test_encoder_generates_no_text(model_type, architecture, tmp_path):
    config = CONFIG_MAPPING[model_type](architectures=[architecture])
    source = ModelSource(name="m", folder=tmp_path, config=config, revision=None)
    with raises(ModelError, task="text-generation", model_type=model_type):
        kind_of("text-generation", model_type).require_task(source, "text-generation")
    served = served_task(config)
    assert served is None or served.value != "text-generation"


@pytest.mark.parametrize(
    ("model_type", "name", "task"),
    [
        ("bert", "sentence-similarity", "feature-extraction"),
        ("bert", "ner", "token-classification"),
        ("t5", "summarization", "text2text-generation"),
        ("t5", "text2text-generation-with-past", "text2text-generation"),
        ("whisper", "speech2seq-lm", "automatic-speech-recognition"),
        ("segformer", "image-segmentation", "semantic-segmentation"),
    ],
)
def test_other_names_of_task_are_known(model_type, name, task):
    choice = infer_task(CONFIG_MAPPING[model_type](), name)
    assert (choice.value, choice.reason) == (task, f"requested as {name}")


def test_every_synonym_is_of_task_and_other_tasks_cannot_be_exported_by_any_name():
    assert not other_tasks() & {*TASKS, *SYNONYMS, "ctc", "speech-seq-2-seq", "seq-to-seq-causal-lm"}
    assert set(SYNONYMS.values()) <= TASKS.keys() and not SYNONYMS.keys() & TASKS.keys()


def test_encoder_configured_as_decoder_is_a_decoder():
    config = CONFIG_MAPPING["bert"](architectures=["BertLMHeadModel"], is_decoder=True)
    assert infer_task(config).value == infer_task(config, "text-generation").value == "text-generation"


def test_configuration_is_loaded_by_transformers(checkpoint):
    assert read_config(checkpoint).to_dict() == AutoConfig.from_pretrained(checkpoint).to_dict()


# Downloaded files.


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A repository on the Hub, and the files downloaded from it."""
    import huggingface_hub

    remote, local, downloaded = tmp_path / "remote", tmp_path / "local", []
    save_tiny_encoder(remote, "vit", "image-classification")
    (remote / "preprocessor_config.json").write_text('{"size": {"height": 32, "width": 32}}')
    for name in ("tokenizer.json", "model-00001-of-00002.safetensors", "pytorch_model.bin"):
        (remote / name).write_text("{}")

    def snapshot_download(name, *, allow_patterns, **options):
        assert name == "acme/vit"
        local.mkdir(exist_ok=True)
        for path in remote.iterdir():
            if any(fnmatch.fnmatch(path.name, pattern) for pattern in allow_patterns):
                downloaded.append(path.name)
                shutil.copy(path, local)
        return str(local)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return downloaded


@pytest.mark.parametrize("ask", [check_model, cache_request])
def test_check_and_cache_lookup_download_no_weights(hub, ask):
    ask("acme/vit")
    assert sorted(hub) == ["config.json", "preprocessor_config.json"]


def test_export_downloads_them(hub):
    load_source("acme/vit")
    assert {"model.safetensors", "tokenizer.json", "config.json"} <= set(hub) and "pytorch_model.bin" not in hub


def test_check_of_cached_configuration_needs_no_network(tmp_path, monkeypatch):
    import huggingface_hub

    commit = "0123456789abcdef" * 2 + "01234567"
    repository = tmp_path / "models--acme--bert"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    config = tiny_encoder_config("bert")
    config.architectures = ["BertForMaskedLM"]
    config.save_pretrained(repository / "snapshots" / commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    report = check_model("acme/bert", sequence_length=8)
    assert report.task.value == "fill-mask" and report.memory.need.weights > 0
