"""Components of diffusion pipelines: counted from configurations as from the graphs of the real models."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.simulator.work import Layers, Work, work_of_graph
from optimum_neuron.simulator.work.diffusion import (
    scale_of,
    uncounted,
    walk_clip,
    walk_decoder,
    walk_encoder,
    walk_flux,
    walk_pixart,
    walk_sd3,
    walk_t5,
    walk_unet,
)
from tests.simulator.pipelines import SD_15, SD_21, SD_VAE, SDXL

COUNTED = ("product_flops", "tensor_cycles", "attention_cycles", "softmax_elements", "vector_elements")
TINY_UNET = {
    "block_out_channels": [32, 64],
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "layers_per_block": 1,
    "attention_head_dim": 4,
    "cross_attention_dim": 48,
}


def counted(walk, config, **sizes) -> Layers:
    layers = Layers(element_bytes=4, auto_cast="matmul")
    walk(layers, config, **sizes)
    return layers


def real(module: torch.nn.Module, *inputs, **named) -> tuple[Work, int]:
    """Work of a module's own graph, and its parameters."""
    with torch.no_grad():
        exported_program = torch.export.export(module.eval(), inputs, named, strict=False)
    roles = ["value" if s.kind.name == "USER_INPUT" else "weight" for s in exported_program.graph_signature.input_specs]
    work = work_of_graph(exported_program.graph_module, roles=roles, auto_cast="matmul").total
    return work, sum(p.numel() for p in module.parameters())


def on_meta(build, **config) -> torch.nn.Module:
    with torch.device("meta"):
        return build(**config)


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def assert_agree(layers: Layers, module: torch.nn.Module, *inputs, passes: float = 0.03, **named) -> None:
    work, num_parameters = real(module, *inputs, **named)
    total = layers.graph("counted").total
    assert layers.num_parameters == num_parameters
    for name in COUNTED:
        tolerance = passes if name == "vector_elements" else 1e-3
        assert getattr(total, name) == pytest.approx(getattr(work, name), rel=tolerance), name


@pytest.mark.parametrize(
    ("config", "size", "parameters"),
    [(SD_15, 64, 859_520_964), (SD_21, 96, 865_910_724), (SDXL, 128, 2_567_463_684)],
    ids=["sd-1.5", "sd-2.1", "sdxl"],
)
def test_unets_have_parameters_of_checkpoints(config, size, parameters):
    layers = counted(walk_unet, config, batch=1, height=size, width=size, text_tokens=77)
    assert layers.num_parameters == layers.local_parameters == parameters


def test_autoencoder_has_parameters_of_checkpoint():
    both = [counted(walk, SD_VAE, batch=1, height=64, width=64) for walk in (walk_decoder, walk_encoder)]
    assert sum(layers.num_parameters for layers in both) == 83_653_863 and scale_of(SD_VAE) == 8


def test_transformers_have_parameters_of_checkpoints():
    sizes = {"batch": 1, "height": 128, "width": 128, "text_tokens": 300}
    assert counted(walk_pixart, {}, **sizes).num_parameters == 611_349_152
    assert counted(walk_sd3, {"num_layers": 24, "num_attention_heads": 24}, **sizes).num_parameters == 2_028_328_000
    assert counted(walk_flux, {"guidance_embeds": True}, **sizes).num_parameters == 11_901_408_320


def test_clip_agrees_with_graph_of_transformers():
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    tokens = empty(2, 77, dtype=torch.long)
    for build, projects in ((CLIPTextModel, False), (CLIPTextModelWithProjection, True)):
        model = on_meta(build, config=CLIPTextConfig(**config))
        assert_agree(counted(walk_clip, config, batch=2, tokens=77, projects=projects), model, tokens)


@pytest.mark.parametrize("projection", ["relu", "gated-gelu"])
def test_t5_agrees_with_graph_of_transformers(projection):
    from transformers import T5Config, T5EncoderModel

    config = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "feed_forward_proj": projection}
    model = on_meta(T5EncoderModel, config=T5Config(**config))
    tokens = empty(1, 32, dtype=torch.long)
    assert_agree(counted(walk_t5, config, batch=1, tokens=32), model, tokens, passes=0.1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"use_linear_projection": True, "transformer_layers_per_block": [2, 1], "attention_head_dim": [2, 4]},
        {"mid_block_type": None},
    ],
    ids=["conv", "linear", "no-middle"],
)
def test_unets_agree_with_graph_of_diffusers(changes):
    diffusers = pytest.importorskip("diffusers")
    config = {**TINY_UNET, **changes}
    model = on_meta(diffusers.UNet2DConditionModel, **config)
    layers = counted(walk_unet, config, batch=2, height=16, width=16, text_tokens=7)
    assert_agree(layers, model, empty(2, 4, 16, 16), empty(2), empty(2, 7, 48))


def test_diffusion_transformers_agree_with_graphs_of_diffusers():
    diffusers = pytest.importorskip("diffusers")
    small = {"num_layers": 2, "num_attention_heads": 4, "attention_head_dim": 16}
    sizes = {"batch": 1, "height": 16, "width": 16, "text_tokens": 9}
    pixart = {**small, "caption_channels": 32, "cross_attention_dim": 64, "sample_size": 16}
    assert_agree(
        counted(walk_pixart, pixart, **sizes),
        on_meta(diffusers.PixArtTransformer2DModel, **pixart),
        empty(1, 4, 16, 16),
        encoder_hidden_states=empty(1, 9, 32),
        timestep=empty(1),
        added_cond_kwargs={"resolution": None, "aspect_ratio": None},
    )
    sd3 = {**small, "qk_norm": "rms_norm", "dual_attention_layers": [0], "joint_attention_dim": 32}
    built = {**sd3, "caption_projection_dim": 64, "pooled_projection_dim": 2048, "pos_embed_max_size": 16}
    assert_agree(
        counted(walk_sd3, sd3, **sizes),
        on_meta(diffusers.SD3Transformer2DModel, **built),
        *(empty(1, 16, 16, 16), empty(1, 9, 32), empty(1, 2048), empty(1)),
    )
    flux = {**small, "num_single_layers": 2, "joint_attention_dim": 32, "guidance_embeds": True}
    assert_agree(
        counted(walk_flux, flux, **sizes),
        on_meta(diffusers.FluxTransformer2DModel, **flux, axes_dims_rope=[4, 6, 6]),
        passes=0.06,
        hidden_states=empty(1, 64, 64),
        encoder_hidden_states=empty(1, 9, 32),
        pooled_projections=empty(1, 768),
        timestep=empty(1),
        guidance=empty(1),
        img_ids=empty(64, 3),
        txt_ids=empty(9, 3),
    )


def test_shares_of_transformer_add_up():
    sizes = {"batch": 1, "height": 64, "width": 64, "text_tokens": 128}
    whole = counted(walk_flux, {}, **sizes)
    share = Layers(element_bytes=4, auto_cast="matmul", num_cores=8)
    walk_flux(share, {}, **sizes)
    assert share.num_parameters == whole.num_parameters
    assert share.local_parameters * 8 == pytest.approx(whole.num_parameters, rel=0.03)
    parts = share.graph("share").total
    assert parts.product_flops * 8 == pytest.approx(whole.graph("whole").total.product_flops, rel=0.03)
    assert parts.num_collectives > 0 and parts.collective_bytes > 0


def test_uncounted_unet_features_are_named():
    assert uncounted(TINY_UNET) == []
    result = uncounted({"class_embed_type": "timestep", "down_block_types": ["KDownBlock2D"]})
    assert result == ["class_embed_type='timestep'", "KDownBlock2D"]


def test_float32_products_without_rounding_are_slower_and_read_more():
    rounded, exact = (Layers(element_bytes=4, auto_cast=cast) for cast in ("matmul", "none"))
    for layers in (rounded, exact):
        layers.linear(128, 256, 256)
    assert exact.graph("x").total.tensor_cycles == 4 * rounded.graph("x").total.tensor_cycles
    assert exact.graph("x").total.weight_bytes > 1.9 * rounded.graph("x").total.weight_bytes
