"""Names of what is added to a pipeline: one or several, under each spelling, and models of another base."""

from __future__ import annotations

import dataclasses
import math
import types

import pytest

from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.sources.pipelines import ADDITION_GROUPS, ADDITION_OPTIONS, ADDITION_SYNONYMS, PipelineAdditions
from optimum_neuron.sources.pipelines.additions import load_additions
from tests.tiny_pipelines import components
from tests.tiny_pipelines.table import make_pipeline, save_pipeline

read = PipelineAdditions.from_options


def test_one_value_or_several_under_each_name():
    additions = read({"lora_model_ids": "a", "lora_scales": 1, "unet": "u", "controlnet_ids": ["c", "d"]})
    expected = {"unet_id": "u", "controlnet_ids": ["c", "d"], "lora_model_ids": ["a"], "lora_scales": [1.0]}
    assert additions.to_dict() == expected and read(expected) == additions
    assert additions.loras == [("a", None, "lora_0", 1.0)]
    assert read({"lora_model_ids": None, "batch_size": 1}) == PipelineAdditions()


def test_objects_of_optimum_neuron():
    lora = types.SimpleNamespace(model_ids=["a"], weight_names="a.safetensors", adapter_names=None, scales=0.5)
    image = types.SimpleNamespace(model_id="i", subfolder="models", weight_name=["x", "y"], scale=[0.1, 0.2])
    assert read({"lora_args": lora, "ip_adapter_args": image}) == PipelineAdditions(
        lora_model_ids=("a",),
        lora_weight_names=("a.safetensors",),
        lora_scales=(0.5,),
        ip_adapter_id=("i",),
        ip_adapter_subfolder=("models",),
        ip_adapter_weight_name=("x", "y"),
        ip_adapter_scale=(0.1, 0.2),
    )


@pytest.mark.parametrize(
    ("options", "details"),
    [
        ({"lora_model_ids": "a", "lora_scales": [1, 2]}, {"lengths": {"lora_model_ids": 1, "lora_scales": 2}}),
        ({"lora_scales": 1.0}, {"option": "lora_model_ids"}),
        ({"ip_adapter_id": "a"}, {"option": "ip_adapter_weight_name"}),
        ({"lora_model_ids": ["a", "b"], "lora_adapter_names": ["x", "x"]}, {"option": "lora_adapter_names"}),
        ({"lora_model_ids": 3}, {"option": "lora_model_ids", "value": 3}),
        ({"lora_model_ids": "a", "lora_scales": "much"}, {"option": "lora_scales", "value": "much"}),
        ({"lora_model_ids": "a", "lora_scales": math.inf}, {"option": "lora_scales", "value": math.inf}),
        ({"unet": "a", "unet_id": "b"}, {"options": ["unet", "unet_id"]}),
    ],
)
def test_names_that_contradict_are_errors(options, details):
    with pytest.raises(ConfigError) as excinfo:
        read(options)
    assert excinfo.value.details == details


def test_models_are_loaded_and_those_of_another_base_refused(tmp_path):
    base = save_pipeline(tmp_path / "base", "sd-controlnet")
    other = components.UNET | {"cross_attention_dim": 64}
    save_pipeline(tmp_path / "other", "sd", unet=("UNet2DConditionModel", other))
    controlnet = components.build("ControlNetModel", components.CONTROLNET | {"cross_attention_dim": 64}, seed=0)
    controlnet.save_pretrained(tmp_path / "other" / "controlnet")
    loaded = load_additions(read({"controlnet_ids": [base, base / "controlnet"], "unet": base}), base)
    assert {name: type(value).__name__ for name, value in loaded.items()} == {
        "unet": "UNet2DConditionModel",
        "controlnet": "list",
    }
    for option in ("unet_id", "controlnet_ids"):
        with pytest.raises(ModelError) as excinfo:
            load_additions(read({option: str(tmp_path / "other")}), base)
        assert excinfo.value.details["different"] == ["cross_attention_dim"]
    for option in ("unet_id", "controlnet_ids"):
        with pytest.raises(ModelError) as excinfo:
            load_additions(read({option: str(base / "vae")}), base)
        assert excinfo.value.details["found"] == "AutoencoderKL"
    make_pipeline("sd3").save_pretrained(tmp_path / "sd3")
    with pytest.raises(ModelError) as excinfo:
        load_additions(read({"unet_id": str(base)}), tmp_path / "sd3")
    assert excinfo.value.details["option"] == "unet_id"


def test_every_option_has_a_reader():
    fields = {field.name for field in dataclasses.fields(PipelineAdditions)}
    assert fields == set(ADDITION_OPTIONS)
    assert fields >= {
        *ADDITION_SYNONYMS.values(),
        *sum(ADDITION_GROUPS.values(), ()),
    }
