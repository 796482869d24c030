"""From a shell and from Python, the task of a model of images and text is inferred and its folder is complete."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText

from optimum_neuron import NeuronModelForImageTextToText, main_export
from optimum_neuron.compiler import capture
from optimum_neuron.errors import ConfigError, ModelError, ValidationError
from tests.image_text import IMAGE, LENGTH, SMALL, save_tiny_image_text, tiny_prompts
from tests.tiny import write_config


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_tiny_image_text(tmp_path_factory.mktemp("checkpoint") / "idefics3", "idefics3")


def refused(folder: Any, **options: Any) -> str:
    """Error message of a refused export."""
    with pytest.raises((ModelError, ConfigError)) as error:
        NeuronModelForImageTextToText.from_pretrained(folder, export=True, **{"optlevel": "1", **options})
    return str(error.value)


@pytest.mark.full(days=2)
def test_command_line_export(cli, checkpoint, tmp_path):
    words = ["--batch_size", "2", "--sequence_length", "64", "--prefill_buckets", "24,64", "--max_num_images", "3"]
    result = cli("export", "neuron", "-m", str(checkpoint), *words, "-O1", "--json", str(tmp_path / "out"))
    assert result.code == 0, result.stderr
    report = result.json
    assert report["task"]["value"] == "image-text-to-text"
    assert report["task"]["reason"] == "config.architectures has Idefics3ForConditionalGeneration"
    names = [graph["name"] for graph in report["graphs"]]
    assert names[:3] == ["encode_image", "prefill_24", "score_24"] and names[-2:] == ["decode_64", "extend_8"]
    assert all(row["ok"] for row in report["validation"])
    model = NeuronModelForImageTextToText.from_pretrained(tmp_path / "out")
    images = {"max_num_images": 3, "image_size": IMAGE, "image_batch_size": 1}
    assert model.input_static_shapes == {"batch_size": 2, "sequence_length": LENGTH, **images}


def test_folder_is_checkpoint_for_transformers(checkpoint, tmp_path):
    layers = main_export(checkpoint, tmp_path / "out", **SMALL).to_dict()["layers"]
    # Few layers of both stacks are captured.
    assert {path: choice["value"] for path, choice in layers.items()} == {
        "model.layers": 2,
        "model.model.model.vision_model.encoder.layers": 2,
    }
    plain, loading_info = AutoModelForImageTextToText.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not loading_info["missing_keys"] and not loading_info["unexpected_keys"]
    original = AutoModelForImageTextToText.from_pretrained(checkpoint)
    from transformers import AutoProcessor

    inputs = tiny_prompts(AutoProcessor.from_pretrained(tmp_path / "out"), 3)
    with torch.no_grad():
        assert torch.equal(plain(**inputs).logits, original(**inputs).logits)


@pytest.mark.full(days=4)
@pytest.mark.parametrize("family", ["llama", "generic"])
def test_check_names_model_modules(cli, tmp_path, family):
    folder = save_tiny_image_text(tmp_path / "c", "llava" if family == "llama" else "llava-siglip-olmo")
    result = cli("neuron", "check", str(folder), "--sequence_length", "64", "--json")
    assert result.code == 0, result.stderr
    assert result.json["family"]["value"] == family
    assert [graph["name"] for graph in result.json["graphs"]][0] == "encode_image"
    paths = " ".join(path for row in result.json["operators"] for path in row["module_paths"])
    assert "model.vision_tower.encoder.layers.0" in paths and "model.model." not in paths
    assert ("model.language_model.layers.0" in paths) == (family == "generic")


def test_misplaced_features_are_detected(checkpoint, tmp_path, monkeypatch):
    from optimum_neuron.kinds.multimodal import plan

    def shifted(entry, **options):
        features = getattr(entry, "_features", None)
        if features is not None:
            entry._features = lambda *inputs: features(*inputs).roll(1, 1)
        return capture(entry, **options)

    monkeypatch.setattr(plan, "capture", shifted)
    with pytest.raises(ValidationError) as error:
        main_export(checkpoint, tmp_path / "out", disable_neuron_cache=True, **SMALL)
    assert error.value.details["scenario"] == "images"


def test_head_tying_follows_full_config(tmp_path):
    tied = main_export(save_tiny_image_text(tmp_path / "smolvlm", "smolvlm"), tmp_path / "tied", **SMALL)
    assert "model.head.weight" not in tied.prepared.weight_sources
    untied = main_export(save_tiny_image_text(tmp_path / "idefics3", "idefics3"), tmp_path / "untied", **SMALL)
    assert untied.prepared.weight_sources["model.head.weight"] == ("lm_head.weight",)
    assert untied.prepared.weight_sources["model.embed.weight"] == ("model.text_model.embed_tokens.weight",)


@pytest.mark.parametrize(
    ("model_type", "reason"), [("llava_next", "joins tiles"), ("mllama", "attend to images"), ("blip-2", "")]
)
def test_unimplemented_architectures_are_refused_by_name(model_type, reason, tmp_path):
    folder = write_config(tmp_path / model_type, model_type=model_type)
    message = refused(folder)
    assert f"architecture {model_type} is not implemented" in message and "gemma3, idefics3, internvl" in message
    assert reason in message


def test_unimplemented_vision_tower_is_refused_by_name(tmp_path):
    vision = {"model_type": "pixtral", "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    folder = write_config(tmp_path / "pixtral", model_type="llava", vision_config=vision)
    message = refused(folder)
    assert "vision tower 'pixtral'" in message and "clip_vision_model, siglip_vision_model" in message


def test_unsupported_sizes_are_refused(checkpoint, tmp_path):
    assert "must be a multiple of 8" in refused(checkpoint, image_size=20)
    llava = save_tiny_image_text(tmp_path / "llava", "llava")
    assert "must be 16: its vision tower has positions for no other size" in refused(llava, image_size=32)
    assert "must be one size" in refused(checkpoint, image_size=(8, 16))
    message = refused(checkpoint, sequence_length=12, max_num_images=3)
    assert "holds 2 images" in message and "sequence_length=13 or more" in message
    assert "max_num_images is 1, but sequence_length=4" in refused(checkpoint, sequence_length=4)


def test_other_image_sizes_where_supported(checkpoint):
    model = NeuronModelForImageTextToText.from_pretrained(checkpoint, export=True, **SMALL, image_size=8)
    assert model.prepared.metadata["image_tokens"] == 1 and all(error.ok for error in model.prepared.validation)


def test_options_of_other_models_are_refused(checkpoint):
    assert "Unknown options of a model for image-text-to-text: 'height'" in refused(checkpoint, height=16)
    assert "max_num_images is 0" in refused(checkpoint, max_num_images=0)
