"""Pipelines of diffusers under `optimum.neuron`: components, the VAE's halves, and pictures of any size."""

from __future__ import annotations

import pytest
import torch
from transformers import CLIPTextModel

from tests.tiny_pipelines.table import save_pipeline

pytestmark = pytest.mark.full(days=2, by="file")

pytest.importorskip("diffusers")
pytest.importorskip("optimum.neuron", reason="the sdk distribution is not installed")

OPTIONS = {"height": 32, "width": 32, "optlevel": "1", "disable_validation": True, "output_hidden_states": True}
CALL = {"num_inference_steps": 2, "output_type": "np"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_pipeline(tmp_path_factory.mktemp("tiny") / "sd", "sd")


@pytest.fixture(scope="module")
def pipe(folder):
    from optimum.neuron import NeuronStableDiffusionPipeline

    with NeuronStableDiffusionPipeline.from_pretrained(folder, export=True, **OPTIONS) as pipe:
        pipe.set_progress_bar_config(disable=True)
        yield pipe


@pytest.fixture(scope="module")
def stock(folder):
    return CLIPTextModel.from_pretrained(folder / "text_encoder", dtype=torch.float32).eval()


@pytest.mark.full(days=3)
def test_components_have_the_classes_of_optimum_neuron(pipe):
    from optimum.neuron import modeling_diffusion as classes

    assert isinstance(pipe.unet, classes.NeuronModelUnet) and isinstance(
        pipe.text_encoder, classes.NeuronModelTextEncoder
    )
    assert not isinstance(pipe.unet, classes.NeuronModelTextEncoder)
    assert isinstance(pipe.vae_encoder, classes.NeuronModelVaeEncoder)
    assert isinstance(pipe.vae_decoder, classes.NeuronModelVaeDecoder)


def test_text_to_image_export_serves_image_to_image(pipe, tmp_path):
    from optimum.neuron import NeuronStableDiffusionImg2ImgPipeline
    from PIL import Image

    picture = Image.new("RGB", (80, 64), "red")
    call = {**CALL, "prompt": "a lighthouse", "image": picture, "strength": 0.75}
    other = NeuronStableDiffusionImg2ImgPipeline.from_pipe(pipe)
    actual = other(**call, generator=torch.Generator().manual_seed(0)).images
    assert actual.shape == (1, 32, 32, 3)
    pipe.save_pretrained(tmp_path / "exported")
    with NeuronStableDiffusionImg2ImgPipeline.from_pretrained(tmp_path / "exported") as loaded:
        loaded.set_progress_bar_config(disable=True)
        expected = loaded(**call, generator=torch.Generator().manual_seed(0)).images
    assert (actual == expected).all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("has_layers", [False, True])
def test_text_encoder_takes_masks_and_returns_layers(pipe, stock, has_layers, has_mask, dtype):
    ids = torch.randint(2, 150, (1, 16), generator=torch.Generator().manual_seed(0)).to(dtype)
    mask = torch.tensor([[1] * 9 + [0] * 4 + [1] * 3], dtype=dtype) if has_mask else None
    actual = pipe.text_encoder(ids, mask, output_hidden_states=has_layers, return_dict=True)
    with torch.no_grad():
        expected = stock(ids, mask, output_hidden_states=has_layers, return_dict=True)
    for name in ("last_hidden_state", "pooler_output"):
        torch.testing.assert_close(actual[name], expected[name], atol=1e-4, rtol=1e-3)
    assert ("hidden_states" in actual) == has_layers
    for layer, other in zip(actual.hidden_states or (), expected.hidden_states or (), strict=True):
        torch.testing.assert_close(layer, other, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("text", ["a red+++ cat", "a (red)0.4 cat", '("a cat", "a dog").blend(0.7, 0.3)', ""])
@pytest.mark.parametrize("kind", [0, 2, 3])
def test_compel_weighs_words(pipe, stock, kind, text):
    compel = pytest.importorskip("compel")
    actual, expected = (
        compel.Compel(pipe.tokenizer, encoder, returned_embeddings_type=compel.ReturnedEmbeddingsType(kind))
        for encoder in (pipe.text_encoder, stock)
    )
    torch.testing.assert_close(actual(text), expected(text), atol=1e-4, rtol=1e-3)


def test_encoder_of_a_vae_is_that_of_diffusers(pipe):
    pictures = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1
    from diffusers import AutoencoderKL

    vae = AutoencoderKL.from_pretrained(pipe.prepared.source.folder / "vae").eval()
    with torch.no_grad():
        expected = vae.encode(pictures).latent_dist.mode()
    torch.testing.assert_close(pipe.vae_encoder(pictures).latent_dist.mode(), expected, atol=1e-4, rtol=1e-3)
