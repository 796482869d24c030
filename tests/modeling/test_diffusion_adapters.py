"""Adapters of compiled pipelines: in an export, in a saved folder, and put into the weights while it runs."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.errors import ConfigError, ModelError, WeightsError

pytest.importorskip("diffusers")
pytest.importorskip("peft")

from optimum_neuron import NeuronDiffusionPipeline, NeuronStableDiffusionPipeline, main_export  # noqa: E402
from tests.raising import raises
from tests.tiny_pipelines.adapters import save_ip_adapter, save_lora  # noqa: E402
from tests.tiny_pipelines.calls import arguments, drawing  # noqa: E402
from tests.tiny_pipelines.table import make_pipeline, save_pipeline  # noqa: E402

SIZES = {"height": 32, "width": 32, "optlevel": "1"}
QUICK = {**SIZES, "disable_validation": True}
LORA_FILE = "pytorch_lora_weights.safetensors"
IMAGE = {"ip_adapter_subfolder": "models", "ip_adapter_weight_name": "ip-adapter.safetensors"}
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A plain pipeline with files of adapters beside it, and an export of it."""
    folder = tmp_path_factory.mktemp("adapters")
    save_pipeline(folder / "sd", "sd")
    save_pipeline(folder / "controlled", "sd-controlnet-2")
    save_lora(folder / "lora", make_pipeline("sd"))
    save_lora(folder / "other", make_pipeline("sdxl"))
    save_ip_adapter(folder / "image", make_pipeline("sd").unet)
    main_export(folder / "sd", folder / "exported", **QUICK)
    return folder


def picture(pipe, row="sd", **changes):
    return torch.from_numpy(pipe(**arguments(row, **changes)).images)


def with_lora(folder, scale):
    pipe = make_pipeline("sd")
    pipe.load_lora_weights(str(folder / "lora"), weight_name=LORA_FILE, adapter_name="style")
    pipe.set_adapters(["style"], [scale])
    return pipe


def with_image(folder, scale):
    pipe = make_pipeline("sd")
    pipe.load_ip_adapter(str(folder / "image"), subfolder="models", weight_name=IMAGE["ip_adapter_weight_name"])
    pipe.set_ip_adapter_scale(scale)
    return pipe


def distance(one, other):
    return (one - other).abs().max().item()


@pytest.mark.full(days=4)
def test_lora_of_an_export_needs_no_new_program(folder, tmp_path):
    options = {"lora_model_ids": folder / "lora", "lora_scales": 0.5}
    report = main_export(folder / "sd", tmp_path / "out", **SIZES, **options).to_dict()
    assert report["cache"]["value"] == "hit"
    with NeuronDiffusionPipeline.from_pretrained(tmp_path / "out") as pipe:
        assert distance(picture(pipe), picture(with_lora(folder, 0.5))) < TOLERANCE
        assert pipe.describe()["additions"] == {"lora_model_ids": [str(folder / "lora")], "lora_scales": [0.5]}


def test_lora_changes_while_a_pipeline_runs(folder):
    plain = picture(make_pipeline("sd"))
    with NeuronDiffusionPipeline.from_pretrained(
        folder / "exported", lora_model_ids=folder / "lora", lora_adapter_names="style"
    ) as pipe:
        assert distance(picture(pipe), picture(with_lora(folder, 1.0))) < TOLERANCE < distance(picture(pipe), plain)
        pipe.set_adapters("style", 0.25)
        assert distance(picture(pipe), picture(with_lora(folder, 0.25))) < TOLERANCE
        assert pipe.get_list_adapters()["unet"] == pipe.get_active_adapters() == ["style"]
        for wrong in (
            lambda: pipe.load_lora_weights(folder / "lora", adapter_name="style"),
            lambda: pipe.set_adapters("none"),
            lambda: pipe.set_adapters("style", [1.0, 2.0]),
            lambda: pipe.fuse_lora(lora_scale=0.5),
            lambda: pipe.load_ip_adapter("a"),
            lambda: pipe.set_ip_adapter_scale(0.5),
        ):
            with pytest.raises(ConfigError):
                wrong()
        with pytest.raises(WeightsError):
            pipe.load_lora_weights(folder / "other")
        pipe.unload_lora_weights()
        assert picture(pipe, generator=None).shape == plain.shape
        assert distance(picture(pipe), plain) < TOLERANCE and "additions" not in pipe.describe()


@pytest.mark.full(days=3)
def test_scale_of_an_image_adapter_changes_and_is_saved(folder, tmp_path):
    call = {"ip_adapter_image": drawing()}
    with NeuronDiffusionPipeline.from_pretrained(
        folder / "sd", export=True, ip_adapter_id=folder / "image", ip_adapter_scale=0.6, **IMAGE, **SIZES
    ) as pipe:
        assert distance(picture(pipe, **call), picture(with_image(folder, 0.6), **call)) < TOLERANCE
        pipe.set_ip_adapter_scale(0.2)
        pipe.save_pretrained(tmp_path / "out")
    with NeuronDiffusionPipeline.from_pretrained(tmp_path / "out") as pipe:
        assert distance(picture(pipe, **call), picture(with_image(folder, 0.2), **call)) < TOLERANCE
        pipe.set_ip_adapter_scale([0.6])
        assert distance(picture(pipe, **call), picture(with_image(folder, 0.6), **call)) < TOLERANCE
        for scale in ([0.1, 0.2], {"up": 1.0}):
            with pytest.raises(ConfigError):
                pipe.set_ip_adapter_scale(scale)


@pytest.mark.full(days=6)
def test_several_controlnets_are_one_program(folder, tmp_path):
    names = [folder / "controlled" / name for name in ("controlnet", "controlnet_1")]
    report = main_export(folder / "sd", tmp_path / "out", **SIZES, controlnet_ids=names).to_dict()
    assert {graph["component"] for graph in report["graphs"]} >= {"controlnet", "unet"}
    with NeuronDiffusionPipeline.from_pretrained(tmp_path / "out") as pipe:
        assert type(pipe).__name__ == "NeuronStableDiffusionControlNetPipeline"
        expected = picture(make_pipeline("sd-controlnet-2"), "sd-controlnet-2")
        assert distance(picture(pipe, "sd-controlnet-2"), expected) < TOLERANCE


def test_what_cannot_be_added_is_refused_first(folder, tmp_path, checkpoint):
    with raises(ModelError, option="controlnet_ids"):
        NeuronStableDiffusionPipeline.from_pretrained(folder / "sd", export=True, controlnet_ids=folder, **QUICK)
    with pytest.raises(ConfigError) as excinfo:
        NeuronDiffusionPipeline.from_pretrained(folder / "exported", controlnet_ids="a")
    assert excinfo.value.details["options"] == {"controlnet_ids": ["a"]}
    with pytest.raises(ModelError) as excinfo:
        main_export(checkpoint, tmp_path / "out", lora_model_ids="a")
    assert excinfo.value.details["options"] == ["lora_model_ids"]
    with pytest.raises(ConfigError) as excinfo:
        main_export(folder / "sd", tmp_path / "out", data_parallel_mode="everything")
    assert excinfo.value.details["option"] == "data_parallel_mode"
