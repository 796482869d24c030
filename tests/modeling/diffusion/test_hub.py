"""Pipelines of the Hub: found in its cache by their names, and pushed as whole folders."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy
import pytest

from optimum_neuron import NeuronDiffusionPipeline
from optimum_neuron.errors import ModelError
from tests.tiny_pipelines.calls import arguments, compile_options, pictures
from tests.tiny_pipelines.table import save_pipeline

pytest.importorskip("diffusers")

COMMIT = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub whose cache is a folder of the test, and whose uploads are put there, as a download leaves them."""
    cache = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    created: list[tuple[str, dict[str, Any]]] = []

    def put(api: Any, *, repo_id: str, folder_path: Path, **options: Any) -> str:
        repository = cache / f"models--{repo_id.replace('/', '--')}"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(COMMIT)
        shutil.copytree(folder_path, repository / "snapshots" / COMMIT)
        return f"https://huggingface.co/{repo_id}/commit/{COMMIT}"

    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", put)
    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", lambda api, name, **given: created.append((name, given)))
    return created


def picture(pipe: Any) -> Any:
    pipe.set_progress_bar_config(disable=True)
    return numpy.asarray(pictures(pipe(**arguments("sd"))))


@pytest.mark.full(days=2)
def test_pushed_pipeline_is_loaded_by_its_name(hub, tmp_path):
    stock = save_pipeline(tmp_path / "sd", "sd")
    huggingface_hub.HfApi().upload_folder(repo_id="acme/fish", folder_path=stock)
    options = {**compile_options("sd"), "disable_validation": True}
    with NeuronDiffusionPipeline.from_pretrained("acme/fish", export=True, **options) as pipe:
        expected = picture(pipe)
        address = pipe.push_to_hub(tmp_path / "out", "acme/fish-neuron", private=True)
    assert address == f"https://huggingface.co/acme/fish-neuron/commit/{COMMIT}"
    assert hub == [("acme/fish-neuron", {"private": True, "exist_ok": True})]
    with NeuronDiffusionPipeline.from_pretrained("acme/fish-neuron") as again:
        numpy.testing.assert_array_equal(picture(again), expected)
        assert again.describe()["model"] == "acme/fish-neuron"


def test_unknown_name_of_the_hub_is_refused(hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError) as caught:
        NeuronDiffusionPipeline.from_pretrained("acme/none")
    assert caught.value.details["model"] == "acme/none"
