"""Adapters on stock pipelines: as diffusers applies them, with plain names of weights, and those of other models."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.errors import ConfigError, ModelError, WeightsError
from optimum_neuron.exporters.diffusion import adapters
from optimum_neuron.exporters.diffusion.additions import PipelineAdditions
from tests.tiny_pipelines.adapters import IMAGE_FILE, save_image_adapter, save_lora
from tests.tiny_pipelines.calls import arguments, drawing
from tests.tiny_pipelines.table import make_pipeline

pytest.importorskip("peft")


def applied(**options):
    pipe = make_pipeline("sd")
    adapters.apply_adapters(pipe, PipelineAdditions.from_options(options))
    return pipe


def picture(pipe, **changes):
    return torch.from_numpy(pipe(**arguments("sd", **changes)).images)


def state(pipe):
    return {**pipe.unet.state_dict(), **pipe.text_encoder.state_dict()}


@pytest.mark.parametrize("names", ["diffusers", "kohya"])
def test_lora_is_in_the_weights(names, tmp_path):
    plain = make_pipeline("sd")
    save_lora(tmp_path, plain, "style.safetensors", names=names)
    save_lora(tmp_path, plain, "other.safetensors", seed=1)
    fused = applied(
        lora_model_ids=[str(tmp_path)] * 2,
        lora_weight_names=["style.safetensors", "other.safetensors"],
        lora_scales=[0.5, 0.25],
    )
    expected = make_pipeline("sd")
    for name in ("style", "other"):
        expected.load_lora_weights(str(tmp_path), weight_name=f"{name}.safetensors", adapter_name=name)
    expected.set_adapters(["style", "other"], [0.5, 0.25])
    assert {name: t.shape for name, t in state(fused).items()} == {name: t.shape for name, t in state(plain).items()}
    assert (picture(fused) - picture(expected)).abs().max() < 1e-4
    assert (picture(fused) - picture(plain)).abs().max() > 1e-3


def test_image_adapter_has_its_scale_in_the_weights(tmp_path):
    save_image_adapter(tmp_path, make_pipeline("sd").unet)
    ours = applied(ip_adapter_id=str(tmp_path), ip_adapter_weight_name=IMAGE_FILE, ip_adapter_scale=0.6)
    expected = make_pipeline("sd")
    expected.load_ip_adapter(str(tmp_path), subfolder="", weight_name=IMAGE_FILE)
    expected.set_ip_adapter_scale(0.6)
    pictures = [picture(pipe, ip_adapter_image=drawing()) for pipe in (ours, expected)]
    assert (pictures[0] - pictures[1]).abs().max() < 1e-4
    assert (pictures[0] - picture(make_pipeline("sd"))).abs().max() > 1e-3


def test_adapters_of_other_models_are_refused(tmp_path):
    plain = make_pipeline("sd")
    save_lora(tmp_path, plain, "wide.safetensors", width=2)
    save_lora(tmp_path, plain, "unknown.safetensors", names="unknown")
    save_image_adapter(tmp_path, plain.unet, cross_attention_dim=48)
    for file in ("wide.safetensors", "unknown.safetensors"):
        with pytest.raises(WeightsError) as excinfo:
            applied(lora_model_ids=str(tmp_path), lora_weight_names=file)
        assert excinfo.value.details == {"adapter": str(tmp_path), "weight_name": file}
    with pytest.raises(WeightsError) as excinfo:
        applied(ip_adapter_id=str(tmp_path), ip_adapter_weight_name=IMAGE_FILE)
    assert excinfo.value.details == {"adapter": [str(tmp_path)], "weight_name": [IMAGE_FILE]}


def test_missing_files_and_pipelines_without_adapters(tmp_path, monkeypatch):
    for options in (
        {"lora_model_ids": str(tmp_path), "lora_weight_names": "none.safetensors"},
        {"lora_model_ids": "acme/style", "lora_weight_names": "none.safetensors"},
        {"ip_adapter_id": str(tmp_path), "ip_adapter_weight_name": "none.safetensors"},
    ):
        with pytest.raises(ModelError) as excinfo:
            applied(**options)
        assert type(excinfo.value) is ModelError
    for options in ({"lora_model_ids": "a"}, {"ip_adapter_id": "a", "ip_adapter_weight_name": "b"}):
        with pytest.raises(ModelError) as excinfo:
            adapters.apply_adapters(make_pipeline("ddim"), PipelineAdditions.from_options(options))
        assert excinfo.value.details["pipeline"] == "DDIMPipeline"
    monkeypatch.setattr(adapters.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as excinfo:
        applied(lora_model_ids=str(tmp_path))
    assert excinfo.value.details == {"package": "peft"}


def test_number_of_scales_is_that_of_image_adapters(tmp_path):
    save_image_adapter(tmp_path, make_pipeline("sd").unet)
    pipe = applied(ip_adapter_id=str(tmp_path), ip_adapter_weight_name=IMAGE_FILE)
    with pytest.raises(ConfigError) as excinfo:
        adapters.scale_image_adapters(pipe.unet, [0.5, 0.5])
    assert excinfo.value.details["num_adapters"] == 1
