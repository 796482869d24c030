"""Every kind of tiny pipeline, compiled: its picture equals that of diffusers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optimum_neuron import NeuronDiffusionPipeline
from tests.tiny_pipelines.calls import arguments, compile_options, pictures
from tests.tiny_pipelines.table import PIPELINES, make_pipeline, save_pipeline

pytestmark = pytest.mark.filterwarnings("ignore")


def compiled(folder: Path, name: str, **options: Any) -> Any:
    """Export a row of `PIPELINES` for the sizes of its calls; the tests compare, so that the export does not."""
    chosen = compile_options(name) | {"disable_validation": True} | options
    pipe = NeuronDiffusionPipeline.from_pretrained(save_pipeline(folder, name), export=True, **chosen)
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.mark.parametrize("name", PIPELINES)
def test_pictures_equal_those_of_diffusers(name: str, tmp_path: Path) -> None:
    expected = pictures(make_pipeline(name)(**arguments(name)))
    with compiled(tmp_path / "stock", name) as pipe:
        assert type(pipe).__name__ == f"Neuron{PIPELINES[name].class_name}"
        actual = pictures(pipe(**arguments(name)))
    assert actual.std() > 0.1
    np.testing.assert_allclose(actual, expected, atol=1e-4)


@pytest.mark.parametrize("name", ["sd", "sd3"])
def test_pictures_in_bfloat16_are_close(name: str, tmp_path: Path) -> None:
    expected = pictures(make_pipeline(name)(**arguments(name)))
    with compiled(tmp_path / "stock", name, auto_cast="all", auto_cast_type="bf16") as pipe:
        actual = pictures(pipe(**arguments(name)))
    noise = np.square(actual - expected).mean()
    sqnr_db = 10 * np.log10(np.square(expected - expected.mean()).mean() / noise)
    assert noise > 0 and sqnr_db > 15
