"""Every kind of tiny pipeline, compiled: its picture equals that of diffusers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from optimum_neuron import NeuronDiffusionPipeline
from optimum_neuron.errors import ConfigError, ModelError
from tests.tiny_pipelines.calls import arguments, compile_options, pictures
from tests.tiny_pipelines.table import PIPELINES, make_pipeline, save_pipeline

pytestmark = pytest.mark.filterwarnings("ignore")


def compiled(folder: Path, name: str, **options: Any) -> Any:
    """Export a row of `PIPELINES` for the sizes of its calls; the tests compare, so that the export does not."""
    chosen = compile_options(name) | {"disable_validation": True} | options
    pipe = NeuronDiffusionPipeline.from_pretrained(save_pipeline(folder, name), export=True, **chosen)
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.mark.full(days=14)
@pytest.mark.parametrize("name", PIPELINES)
def test_pictures_equal_those_of_diffusers(name: str, tmp_path: Path) -> None:
    expected = pictures(make_pipeline(name)(**arguments(name)))
    with compiled(tmp_path / "stock", name) as pipe:
        assert type(pipe).__name__ == f"Neuron{PIPELINES[name].class_name}"
        actual = pictures(pipe(**arguments(name)))
    assert actual.std() > 0.1
    np.testing.assert_allclose(actual, expected, atol=1e-4)


AUTO_CAST = {"auto_cast": "all", "auto_cast_type": "bf16"}


@pytest.mark.full(days=6)
@pytest.mark.parametrize(
    ("name", "options"), [("sd", AUTO_CAST), ("sd3", AUTO_CAST), ("sdxl-img2img", {"torch_dtype": "bfloat16"})]
)
def test_pictures_in_bfloat16_are_close(name: str, options: dict[str, str], tmp_path: Path) -> None:
    expected = pictures(make_pipeline(name)(**arguments(name)))
    with compiled(tmp_path / "stock", name, **options) as pipe:
        actual = pictures(pipe(**arguments(name)))
    noise = np.square(actual - expected).mean()
    sqnr_db = 10 * np.log10(np.square(expected - expected.mean()).mean() / noise)
    assert noise > 0 and sqnr_db > 15


@pytest.mark.full(days=3)
@pytest.mark.parametrize("name", ["flux", "sd3", "pixart-alpha"])
def test_cores_share_a_transformer(name: str, tmp_path: Path) -> None:
    expected = pictures(make_pipeline(name)(**arguments(name)))
    other = make_pipeline(name, seed=7)
    with compiled(tmp_path / "stock", name, tensor_parallel_size=2, instance_type="inf2.xlarge") as pipe:
        cores = pipe.describe()["cores"]
        assert cores["transformer"] == [0, 1] and len(cores["vae_decoder"]) == 1
        np.testing.assert_allclose(pictures(pipe(**arguments(name))), expected, atol=1e-4)
        pipe.save_pretrained(tmp_path / "exported")
        pipe.replace_weights(**{part: getattr(other, part) for part in pipe.prepared.models})
        np.testing.assert_allclose(pictures(pipe(**arguments(name))), pictures(other(**arguments(name))), atol=1e-4)
    with NeuronDiffusionPipeline.from_pretrained(tmp_path / "exported") as pipe:
        assert pipe.neuron_config.tensor_parallel_size == 2
        np.testing.assert_allclose(pictures(pipe(**arguments(name))), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sd", {"tensor_parallel_size": 2}),
        ("ltx", {"tensor_parallel_size": 2}),
        ("flux", {"tensor_parallel_size": 0}),
        ("flux", {"tensor_parallel_size": 2, "data_parallel_mode": "all"}),
        ("flux", {"tensor_parallel_size": 8, "instance_type": "trn1.32xlarge"}),
        ("sd", {"dtype": "bfloat16", "torch_dtype": "float32"}),
    ],
)
def test_cores_and_dtypes_that_are_refused(name: str, options: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        compiled(tmp_path / "stock", name, **{"instance_type": "inf2.xlarge", **options})


@pytest.mark.full(days=3)
def test_dtype_is_another_name_of_torch_dtype(tmp_path: Path) -> None:
    folder, sizes = save_pipeline(tmp_path / "sd", "sd"), {"height": 32, "width": 32, "optlevel": "1"}
    with NeuronDiffusionPipeline.from_pretrained(
        folder, export=True, dtype=torch.bfloat16, torch_dtype="bfloat16", disable_validation=True, **sizes
    ) as pipe:
        assert pipe.neuron_config.torch_dtype == "bfloat16"


@pytest.mark.parametrize("part", ["tokenizer", "scheduler", "unet"])
def test_missing_parts_are_named(part: str, tmp_path: Path) -> None:
    folder = save_pipeline(tmp_path / "sd", "sd")
    shutil.rmtree(folder / part)
    with pytest.raises(ModelError) as error:
        NeuronDiffusionPipeline.from_pretrained(folder, export=True, height=32, width=32, optlevel="1")
    assert error.value.details["component"] == part
