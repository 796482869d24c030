"""Estimates of diffusion pipelines, from folders of configurations."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from optimum_neuron.artifact import open_artifact
from optimum_neuron.errors import ConfigError, DeviceMemoryError, ModelError
from optimum_neuron.exporters import main_export
from optimum_neuron.options.configuration import NEFF_FILE
from optimum_neuron.simulator import EstimateRequest, compare, constants, estimate
from optimum_neuron.simulator.diffusion import picture_request, plan_pictures, read_pipeline
from optimum_neuron.simulator.work import work_of_program
from tests.raising import raises
from tests.simulator.pipelines import FEW, FEW_LEVELS_XL, FLUX, PIPELINES, SDXL, write_pipeline
from tests.tiny_pipelines.calls import compile_options
from tests.tiny_pipelines.table import save_pipeline

pytest.importorskip("diffusers")

SMALL_CLIP = {"hidden_size": 768, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 12}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Folders that no test changes: the programs of each are captured once."""
    folder = tmp_path_factory.mktemp("published")
    return {name: write_pipeline(folder / name, name) for name in PIPELINES}


@pytest.fixture
def pipeline(published, tmp_path):
    def write(name: str, **changes):
        return write_pipeline(tmp_path / name, name, **changes) if changes else published[name]

    return write


@pytest.mark.full(days=6)
@pytest.mark.parametrize("name", [name for name in PIPELINES if name != "flux"])
def test_every_pipeline_has_time_memory_and_money(pipeline, name):
    report = estimate(pipeline(name), instance="inf2.xlarge")
    assert report.simulated and report.num_cores.value == 2 and report.num_copies.value == 1
    assert report.kind == ("diffusion" if "unet" in PIPELINES[name] else "diffusion-transformer")
    assert report.throughput_per_s.value == pytest.approx(1e3 / report.latency_ms.value)
    assert report.usd_per_1m.value > 0 and 0 < report.mfu.value < 1 and 0 < report.mbu.value < 1
    assert {"vae_decoder", "scratch", "code"} < report.memory.keys() and "text_encoder" in report.parts_ms
    assert report.tpot_ms is None and report.ttft_ms is None
    assert report.latency_ms.high / report.latency_ms.low > 1.5 and report.notes


@pytest.mark.full(days=6)
def test_denoising_steps_dominate(pipeline):
    folder = pipeline("sd-1.5")
    ten, twenty = (estimate(folder, instance="inf2.xlarge", num_inference_steps=n).latency_ms.value for n in (10, 20))
    rest = 2 * ten - twenty
    assert 0 < rest < ten / 2
    assert twenty - ten > 10 * estimate(folder, instance="inf2.xlarge").bounds["unet"]


@pytest.mark.full(days=6)
def test_guidance_takes_second_core_or_twice_the_time(pipeline):
    folder = pipeline("sd-1.5")
    apart, together, without = (
        estimate(folder, instance="inf2.xlarge", **options)
        for options in ({}, {"data_parallel_mode": "none"}, {"guidance_scale": 1.0})
    )
    assert (apart.num_cores.value, together.num_cores.value, without.num_cores.value) == (2, 1, 1)
    assert together.latency_ms.value == pytest.approx(2 * apart.latency_ms.value, rel=0.1)
    assert without.latency_ms.value == pytest.approx(apart.latency_ms.value, rel=0.01)
    assert without.throughput_per_s.value == pytest.approx(2 * apart.throughput_per_s.value, rel=0.01)


@pytest.mark.full(days=6)
def test_first_text_encoder_can_be_left_out(pipeline):
    unet = ("diffusers", "UNet2DConditionModel", {**SDXL, **FEW, **FEW_LEVELS_XL, "cross_attention_dim": 1280})
    refiner = pipeline("sdxl", _class_name="StableDiffusionXLImg2ImgPipeline", text_encoder=None, unet=unet)
    assert "text_encoder" not in estimate(refiner, instance="inf2.xlarge").memory


@pytest.mark.full(days=6)
def test_third_text_encoder_can_be_left_out(pipeline):
    with_t5 = estimate(pipeline("sd3"), instance="inf2.xlarge")
    without = estimate(pipeline("sd3", text_encoder_3=None), instance="inf2.xlarge")
    assert without.parts_ms["transformer"] == with_t5.parts_ms["transformer"]  # zeros take their place


@pytest.mark.full(days=6)
def test_refiner_takes_on_latents_of_the_base(pipeline):
    base = pipeline("sdxl")
    unet = ("diffusers", "UNet2DConditionModel", {**SDXL, **FEW, **FEW_LEVELS_XL, "cross_attention_dim": 1280})
    refiner = pipeline("sdxl", _class_name="StableDiffusionXLImg2ImgPipeline", text_encoder=None, unet=unet)
    shapes = {"instance": "inf2.xlarge", "num_inference_steps": 10}
    alone, both = estimate(base, **shapes), estimate(base, refiner_model=refiner, denoising_end=0.7, **shapes)
    assert "vae_decoder" not in both.parts_ms and "refiner_vae_decoder" in both.parts_ms
    assert any("refiner_unet 3 x" in text for text in both.assumptions)
    assert both.memory["refiner_unet"] > 0 and both.latency_ms.value == pytest.approx(alone.latency_ms.value, rel=0.2)
    with pytest.raises(ConfigError) as caught:
        estimate(base, denoising_end=0.7, **shapes)
    assert caught.value.details["option"] == "denoising_end"


@pytest.mark.full(days=6)
def test_larger_images_and_batches_take_longer(pipeline):
    folder = pipeline("sd-1.5")
    small, large, four = (
        estimate(folder, instance="inf2.xlarge", **options).latency_ms.value
        for options in ({}, {"height": 768, "width": 768}, {"batch_size": 4})
    )
    assert large > 2.25 * small  # attention grows with the square of the pixels
    assert 3 * small < four < 4.5 * small


@pytest.mark.full(days=6)
@pytest.mark.parametrize(
    ("name", "class_name"),
    [
        ("sd-1.5", "StableDiffusionInpaintPipeline"),
        # Moves its autoencoder to float32 before it encodes.
        ("sdxl", "StableDiffusionXLImg2ImgPipeline"),
    ],
)
def test_initial_image_is_encoded(pipeline, name, class_name):
    report = estimate(pipeline(name, _class_name=class_name), instance="inf2.xlarge", dtype="bfloat16")
    assert "vae_encoder" in report.parts_ms and report.memory["vae_encoder"] > 0


@pytest.mark.full(days=6)
def test_too_large_transformer_is_sharded(pipeline):
    report = estimate(pipeline("flux"), instance="trn1.32xlarge")
    assert report.num_cores.value == 2 and report.num_copies.value == 16
    assert report.parts_ms["transformer"]["link"] > 0 and "each step runs once" in report.assumptions[0]
    with raises(DeviceMemoryError) as error:
        estimate(pipeline("flux"), instance="trn1.32xlarge", tensor_parallel_size=1)
    assert sum(error.value.details["hbm_bytes"].values()) > error.value.details["available"]
    assert report.memory["transformer"] < 6e9 and report.memory["text_encoder_2"] < 5e9
    with raises(ConfigError, num_cores=3, legal=[1, 2, 8, 16, 32]):
        estimate(pipeline("flux"), instance="trn1.32xlarge", tensor_parallel_size=3)


@pytest.mark.full(days=6)
def test_all_instances_are_compared(pipeline):
    result = compare(pipeline("sd-1.5"), instance="inf2", optimize="cost")
    assert {one.instance.value for one in result.ranked} >= {"inf2.xlarge", "inf2.48xlarge"}


@pytest.mark.parametrize(
    ("name", "options", "details"),
    [
        ("sd-1.5", {"height": 500}, {"option": "height", "value": 500, "multiple": 8, "nearest": 496}),
        ("sd-1.5", {"num_inference_steps": 0}, {"option": "num_inference_steps", "value": 0}),
        ("sd-1.5", {"num_inference_steps": 5000}, {"option": "num_inference_steps", "value": 5000}),
        ("sd-1.5", {"guidance_scale": float("nan")}, {"option": "guidance_scale"}),
        ("flux", {"width": 1000}, {"option": "width", "value": 1000, "multiple": 16, "nearest": 992}),
        ("sd-1.5", {"batch_size": -1}, {"option": "batch_size", "value": -1}),
        ("sd-1.5", {"output_length": 5, "stack": "vllm"}, {"options": ["output_length", "stack"]}),
        ("sd-1.5", {"sequence_length": 64}, {"option": "sequence_length", "value": 64}),
        ("sd-1.5", {"num_frames": 9}, {"options": ["num_frames"]}),
        ("sd-1.5", {"tensor_parallel_size": 2}, {"option": "tensor_parallel_size", "value": 2}),
        (
            "sd-1.5",
            {"data_parallel_mode": "transformer"},
            {"option": "data_parallel_mode", "value": "transformer", "choices": ["none", "unet"]},
        ),
        (
            "sd-1.5",
            {"data_parallel_mode": "unet", "guidance_scale": 1.0},
            {"option": "data_parallel_mode", "value": "unet"},
        ),
        ("sd-1.5", {"dtype": "int8"}, {"option": "dtype", "value": "int8"}),
        ("sd-1.5", {"num_steps": 5}, {"options": ["num_steps"]}),
        ("sdxl", {"denoising_end": 0.8}, {"option": "denoising_end", "value": 0.8}),
        ("sdxl", {"refiner_model": "x", "denoising_end": 1.5}, {"option": "denoising_end", "value": 1.5}),
    ],
)
def test_bad_input_is_refused(pipeline, name, options, details):
    with raises(ConfigError, **details):
        estimate(pipeline(name), **{"instance": "inf2.xlarge", **options})


def test_parts_without_support_are_named(pipeline, tmp_path):
    with raises(ModelError, architecture="StableDiffusionPipelin"):
        estimate(pipeline("sd-1.5", _class_name="StableDiffusionPipelin"), instance="inf2.xlarge")
    other = {"vae": None, "text_encoder": ("os", "CLIPTextModel", {})}
    with pytest.raises(ModelError) as error:
        estimate(write_pipeline(tmp_path / "other", "sd-1.5", **other), instance="inf2.xlarge")
    assert error.value.details["missing"] == ["vae", "text_encoder"]
    with raises(ModelError, class_name="UNet2DConditionModel", missing="model_index.json"):
        estimate(pipeline("sdxl") / "unet", instance="inf2.xlarge")
    broken = write_pipeline(tmp_path / "broken", "sd3")
    (broken / "vae" / "config.json").unlink()
    with raises(ModelError, model=str(broken / "vae"), reason="empty"):
        estimate(broken, instance="inf2.xlarge")


def test_component_that_its_library_cannot_build_is_named(pipeline):
    broken = ("diffusers", "UNet2DConditionModel", {"block_out_channels": [32]})
    folder = pipeline("sd-1.5", unet=broken)
    with raises(ModelError, folder=str(folder / "unet")):
        estimate(folder, instance="inf2.xlarge")


def test_missing_library_is_named(pipeline, monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    changed = ("diffusers", "UNet2DConditionModel", {"sample_size": 8})
    with raises(ModelError, package="diffusers"):
        estimate(pipeline("sd-1.5", unet=changed, vae=("diffusers", "AutoencoderKL", {})), instance="inf2.xlarge")


@pytest.mark.full(days=6)
def test_too_large_model_reports_what_would_fit(pipeline):
    with raises(DeviceMemoryError) as error:
        estimate(pipeline("sd-1.5"), instance="inf2.xlarge", batch_size=4, height=2048, width=2048)
    assert error.value.details["hbm_bytes"]["scratch"] > 9 * 2**30


@pytest.mark.full(days=6)
def test_command(cli, pipeline):
    folder = str(pipeline("sd-1.5"))
    result = cli("neuron", "estimate", folder, "--instance", "inf2.xlarge", "--num_inference_steps", "20")
    assert result.code == 0 and "20 steps" in result.stdout and "time of each engine" in result.stdout
    data = cli("neuron", "estimate", folder, "--instance", "inf2.xlarge", "--guidance_scale", "0", "--json").json
    assert data["latency_ms"].keys() == {"value", "low", "high", "limited_by"} and data["num_cores"]["value"] == 1
    assert json.dumps(data).count("simulated")


def test_component_has_the_parameters_of_its_published_checkpoint(pipeline):
    sdxl = read_pipeline(pipeline("sdxl", unet=("diffusers", "UNet2DConditionModel", SDXL)), name="sdxl")
    assert sdxl.weight_bytes("unet", "float32", 1) == 4 * 2_567_463_684


@pytest.mark.full(days=6)
def test_shares_of_a_transformer_add_up(pipeline):
    num_cores = 16
    small = {"num_layers": 1, "num_single_layers": 1, "num_attention_heads": 16, "axes_dims_rope": [16, 56, 56]}
    t5 = ("transformers", "T5EncoderModel", {"d_model": 4096, "num_layers": 1, "num_heads": 16, "d_ff": 64})
    changes = {"transformer": ("diffusers", "FluxTransformer2DModel", {**FLUX, **small}), "text_encoder_2": t5}
    flux = read_pipeline(pipeline("flux", **changes), name="flux")
    request = picture_request(flux, EstimateRequest(sequence_length=9, export={"height": 128, "width": 128}))
    plans = [plan_pictures(flux, request, num_cores=n, halves_apart=False) for n in (1, num_cores)]
    whole, share = (plan.step.graph.total for plan in plans)
    assert share.attention_cycles * num_cores == pytest.approx(whole.attention_cycles)
    assert whole.product_flops < num_cores * share.product_flops < 1.4 * whole.product_flops  # modulation is whole
    assert (share.num_collectives, whole.num_collectives) == (5, 0)


@pytest.mark.full(days=6)
def test_published_pipelines_are_predicted():
    sys.path.append(str(Path(__file__).parents[2] / "tools/fidelity"))
    from cases import cases, read_rows

    rows = [row for row in read_rows() if row.category == "diffusion" and row.image_size == "512x512"]
    errors = [abs(case.predict(constants()) / case.row.value - 1) for case in cases(rows)]
    assert len(errors) == 4 and max(errors) < 0.12  # the median of rows that took no part in the fit is 8 %


@pytest.mark.full(days=6)
@pytest.mark.parametrize("name", ["sd-img2img", "sd-controlnet-2", "ltx", "ddpm"])
def test_pipeline_is_counted_as_its_export(tmp_path, name):
    folder, exported = save_pipeline(tmp_path / name, name), tmp_path / "exported"
    options = compile_options(name)
    main_export(folder, exported, instance_type="inf2.xlarge", disable_validation=True, **options)
    steps = {"num_inference_steps": 10, "instance": "inf2.xlarge"}
    after = estimate(exported, **steps)
    sizes = {key: options[key] for key in ("height", "width", "num_frames", "sequence_length") if key in options}
    plain = {"data_parallel_mode": "none", "dtype": "float32", "auto_cast": "none"}
    alone = estimate(folder, **steps, **sizes, **plain)
    assert alone.latency_ms == after.latency_ms and alone.memory == after.memory and alone.parts_ms == after.parts_ms
    with pytest.raises(ConfigError) as error:
        estimate(exported, batch_size=2, height=64, **steps)
    assert error.value.details["options"] == ["batch_size", "height"]


@pytest.mark.full(days=6)
def test_compiled_pipeline_is_estimated_with_its_largest_sizes(tmp_path):
    folder, exported = save_pipeline(tmp_path / "sd", "sd"), tmp_path / "exported"
    sizes = {"height": 32, "width": [32, 64], "batch_size": 2, "disable_validation": True, "instance_type": "inf2"}
    main_export(folder, exported, task="text-to-image", data_parallel_mode="unet", **sizes)
    report = estimate(exported, instance="inf2.xlarge", num_inference_steps=10)
    assert "32 x 64 pixels, 2 together, 10 steps" in report.assumptions[0] and report.num_cores.value == 2
    compiled = open_artifact(exported / "unet" / NEFF_FILE).program
    largest = max(work_of_program(compiled, graph, auto_cast="none").total.hbm_bytes for graph in compiled.graphs)
    assert report.hbm_bytes_per_step.value == largest


@pytest.mark.full(days=6)
def test_prompts_are_as_long_as_the_text_encoder_reads(pipeline):
    clip = ("transformers", "CLIPTextModel", {**SMALL_CLIP, "max_position_embeddings": 16})
    assert estimate(pipeline("sd-1.5", text_encoder=clip), instance="inf2.xlarge", height=64, width=64).memory
