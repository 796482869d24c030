"""Adapters on stock pipelines: as diffusers applies them, with plain names of weights, and those of other models."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from optimum_neuron.errors import ConfigError, ModelError, WeightsError
from optimum_neuron.sources.pipelines import PipelineAdditions
from optimum_neuron.sources.pipelines.adapters import apply_adapters, scale_image_adapters
from tests.tiny_pipelines.adapters import LORA_NAMES, save_ip_adapter, save_lora
from tests.tiny_pipelines.calls import arguments, drawing
from tests.tiny_pipelines.table import make_pipeline

pytest.importorskip("peft")

LORA_FILE, IMAGE_FILE = "pytorch_lora_weights.safetensors", "ip-adapter.safetensors"


def applied(**options):
    pipe = make_pipeline("sd")
    apply_adapters(pipe, PipelineAdditions.from_options(options))
    return pipe


def picture(pipe, **changes):
    return torch.from_numpy(pipe(**arguments("sd", **changes)).images)


def state(pipe):
    return {**pipe.unet.state_dict(), **pipe.text_encoder.state_dict()}


@pytest.mark.parametrize("names", LORA_NAMES)
def test_lora_is_in_the_weights(names, tmp_path):
    plain = make_pipeline("sd")
    save_lora(tmp_path, plain, names=names)
    fused = applied(lora_model_ids=str(tmp_path), lora_scales=0.5)
    expected = make_pipeline("sd")
    expected.load_lora_weights(str(tmp_path), weight_name=LORA_FILE, adapter_name="style")
    expected.set_adapters(["style"], [0.5])
    assert {name: t.shape for name, t in state(fused).items()} == {name: t.shape for name, t in state(plain).items()}
    assert (picture(fused) - picture(expected)).abs().max() < 1e-4
    assert (picture(fused) - picture(plain)).abs().max() > 1e-3


def test_several_loras_are_added_up(tmp_path):
    plain = make_pipeline("sd")
    folders = [str(save_lora(tmp_path / str(seed), plain, seed=seed)) for seed in range(2)]
    both = state(applied(lora_model_ids=folders, lora_scales=[0.5, 0.25]))
    each = [state(applied(lora_model_ids=folder, lora_scales=1)) for folder in folders]
    name = "mid_block.attentions.0.transformer_blocks.0.attn1.to_q.weight"
    base = state(plain)[name]
    sums = base + 0.5 * (each[0][name] - base) + 0.25 * (each[1][name] - base)
    torch.testing.assert_close(both[name], sums)


def test_image_adapter_has_its_scale_in_the_weights(tmp_path):
    folder = str(save_ip_adapter(tmp_path, make_pipeline("sd").unet))
    options = {"ip_adapter_subfolder": "models", "ip_adapter_weight_name": IMAGE_FILE, "ip_adapter_scale": 0.6}
    ours = applied(ip_adapter_id=folder, **options)
    expected = make_pipeline("sd")
    expected.load_ip_adapter(folder, subfolder="models", weight_name=IMAGE_FILE)
    expected.set_ip_adapter_scale(0.6)
    pictures = [picture(pipe, ip_adapter_image=drawing()) for pipe in (ours, expected)]
    assert (pictures[0] - pictures[1]).abs().max() < 1e-4
    assert (pictures[0] - picture(make_pipeline("sd"))).abs().max() > 1e-3
    with pytest.raises(ConfigError) as excinfo:
        scale_image_adapters(ours.unet, [0.5, 0.5])
    assert excinfo.value.details["num_adapters"] == 1


@pytest.mark.parametrize("other", ["sdxl", "flux"])
def test_adapters_of_other_models_are_refused(other, tmp_path):
    save_lora(tmp_path, make_pipeline(other))
    with pytest.raises(WeightsError) as excinfo:
        applied(lora_model_ids=str(tmp_path))
    assert (excinfo.value.details["adapter"], excinfo.value.details["weight_name"]) == (str(tmp_path), None)
    if other == "sdxl":
        assert "size mismatch for" in excinfo.value.details["reason"], "the words of torch"
        save_ip_adapter(tmp_path, make_pipeline(other).unet)
        with pytest.raises(WeightsError) as excinfo:
            applied(ip_adapter_id=str(tmp_path / "models"), ip_adapter_weight_name=IMAGE_FILE)
        assert excinfo.value.details["weight_name"] == [IMAGE_FILE]


def test_missing_files_and_pipelines_without_adapters(tmp_path, monkeypatch):
    for options in (
        {"lora_model_ids": str(tmp_path / "none")},
        {"lora_model_ids": str(tmp_path), "lora_weight_names": "none.safetensors"},
        {"lora_model_ids": "acme/style", "lora_weight_names": "none.safetensors"},
        {"ip_adapter_id": str(tmp_path), "ip_adapter_weight_name": "none.safetensors"},
    ):
        with pytest.raises(ModelError) as excinfo:
            applied(**options)
        assert type(excinfo.value) is ModelError
    for options in ({"lora_model_ids": "a"}, {"ip_adapter_id": "a", "ip_adapter_weight_name": "b"}):
        with pytest.raises(ModelError) as excinfo:
            apply_adapters(make_pipeline("ddim"), PipelineAdditions.from_options(options))
        assert excinfo.value.details["pipeline"] == "DDIMPipeline"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as excinfo:
        applied(lora_model_ids=str(tmp_path))
    assert excinfo.value.details == {"package": "peft"}
