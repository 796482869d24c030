"""Commands on the folder of an exported diffusion pipeline."""

from __future__ import annotations

import pytest

from optimum_neuron.exporters import main_export
from tests.tiny_pipelines.calls import compile_options
from tests.tiny_pipelines.table import save_pipeline

pytest.importorskip("diffusers")

PARTS = {"text_encoder", "unet", "vae_decoder", "vae_encoder"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipelines")
    options = {**compile_options("sd"), "instance_type": "inf2.xlarge", "data_parallel_mode": "unet"}
    main_export(save_pipeline(folder / "sd", "sd"), folder / "out", disable_validation=True, **options)
    return str(folder / "out")


@pytest.mark.full(days=6)
def test_inspect_describes_each_component(cli, exported):
    data = cli("neuron", "inspect", exported, "--json").json
    assert data["pipeline"] == "StableDiffusionPipeline" and data["components"].keys() == PARTS
    for name, part in data["components"].items():
        assert part == cli("neuron", "inspect", f"{exported}/{name}", "--json").json
    shown = cli("neuron", "inspect", exported)
    assert shown.code == 0 and "components" in shown.stdout.splitlines()
    assert all(f"{name}.graphs" in shown.stdout.splitlines() for name in PARTS)


def test_profile_is_of_a_picture(cli, exported):
    data = cli("neuron", "profile", exported, "--num_steps", "3", "--json").json
    calls = {graph["model"].rpartition("/")[2]: graph["num_calls"] for graph in data["graphs"]}
    assert calls["unet"] == 2 * 3 and calls["vae_decoder"] == 1 and calls["text_encoder"] == 2
    assert len(data["cores"]) == 2  # the halves of a step are on a core each
    refused = cli("neuron", "profile", exported, "--prompt_length", "5")
    assert refused.code == 1 and "prompt_length" in refused.stderr
