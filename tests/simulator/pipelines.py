"""Folders of diffusion pipelines with the published sizes and no weights.

U-Nets, transformers, and text encoders have the published widths and fewer blocks, so that they are counted sooner.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SD_15 = {"cross_attention_dim": 768, "attention_head_dim": 8, "sample_size": 64}
SD_21 = {
    "cross_attention_dim": 1024,
    "attention_head_dim": [5, 10, 20, 20],
    "use_linear_projection": True,
    "sample_size": 96,
}
SDXL = {
    "block_out_channels": [320, 640, 1280],
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    "transformer_layers_per_block": [1, 2, 10],
    "attention_head_dim": [5, 10, 20],
    "cross_attention_dim": 2048,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "projection_class_embeddings_input_dim": 2816,
    "addition_time_embed_dim": 256,
    "sample_size": 128,
}
FEW = {"layers_per_block": 1, "transformer_layers_per_block": 1}
FEW_LEVELS = {
    "block_out_channels": [320, 640],
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
}
FEW_LEVELS_XL = {
    "block_out_channels": [320, 640],
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
    "attention_head_dim": [5, 10],
}
SD_VAE = {
    "block_out_channels": [128, 256, 512, 512],
    "layers_per_block": 1,
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
}
FLUX = {"guidance_embeds": True, "num_layers": 8, "num_single_layers": 10}
PIXART = {"sample_size": 64, "caption_channels": 4096, "cross_attention_dim": 1152, "out_channels": 8}
SD3 = {"num_layers": 2, "num_attention_heads": 24, "caption_projection_dim": 1536, "pos_embed_max_size": 96}
CLIP_L = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 2,
    "num_attention_heads": 12,
    "projection_dim": 768,
}
CLIP_G = {
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_hidden_layers": 2,
    "num_attention_heads": 20,
    "projection_dim": 1280,
    "hidden_act": "gelu",
}
T5_XXL = {
    "d_model": 4096,
    "d_kv": 64,
    "d_ff": 10240,
    "num_layers": 24,
    "num_heads": 64,
    "feed_forward_proj": "gated-gelu",
}

FEW_T5 = {**T5_XXL, "num_layers": 2}
LARGE_T5 = {**FEW_T5, "d_ff": 18 * 10240}
"""Two layers with the bytes of all 24."""

PIPELINES: dict[str, dict[str, Any]] = {
    "sd-1.5": {
        "_class_name": "StableDiffusionPipeline",
        "unet": ("diffusers", "UNet2DConditionModel", {**SD_15, **FEW, **FEW_LEVELS}),
        "vae": ("diffusers", "AutoencoderKL", SD_VAE),
        "text_encoder": ("transformers", "CLIPTextModel", CLIP_L),
    },
    "sdxl": {
        "_class_name": "StableDiffusionXLPipeline",
        "unet": ("diffusers", "UNet2DConditionModel", {**SDXL, **FEW, **FEW_LEVELS_XL}),
        "vae": ("diffusers", "AutoencoderKL", SD_VAE),
        "text_encoder": ("transformers", "CLIPTextModel", CLIP_L),
        "text_encoder_2": ("transformers", "CLIPTextModelWithProjection", CLIP_G),
    },
    "pixart": {
        "_class_name": "PixArtAlphaPipeline",
        "transformer": ("diffusers", "PixArtTransformer2DModel", PIXART),
        "vae": ("diffusers", "AutoencoderKL", SD_VAE),
        "text_encoder": ("transformers", "T5EncoderModel", FEW_T5),
    },
    "sd3": {
        "_class_name": "StableDiffusion3Pipeline",
        "transformer": ("diffusers", "SD3Transformer2DModel", SD3),
        "vae": ("diffusers", "AutoencoderKL", {**SD_VAE, "latent_channels": 16, "shift_factor": 0.06}),
        "text_encoder": ("transformers", "CLIPTextModelWithProjection", CLIP_L),
        "text_encoder_2": ("transformers", "CLIPTextModelWithProjection", CLIP_G),
        "text_encoder_3": ("transformers", "T5EncoderModel", FEW_T5),
    },
    "flux": {
        "_class_name": "FluxPipeline",
        "transformer": ("diffusers", "FluxTransformer2DModel", FLUX),
        "vae": (
            "diffusers",
            "AutoencoderKL",
            {**SD_VAE, "latent_channels": 16, "shift_factor": 0.1, "use_post_quant_conv": False},
        ),
        "text_encoder": ("transformers", "CLIPTextModel", CLIP_L),
        "text_encoder_2": ("transformers", "T5EncoderModel", LARGE_T5),
    },
}
"""Pipelines by short name: contents of model_index.json, with the configuration of each component."""


_TYPES = {**dict.fromkeys(("CLIPTextModel", "CLIPTextModelWithProjection"), "clip_text_model"), "T5EncoderModel": "t5"}


def write_pipeline(folder: Path, name: str, **changes: Any) -> Path:
    """Write a pipeline's folder: model_index.json, and config.json of each component; None leaves one out."""
    parts = {**PIPELINES[name], **changes}
    index: dict[str, Any] = {"scheduler": ["diffusers", "PNDMScheduler"], "safety_checker": [None, None]}
    folder.mkdir(parents=True, exist_ok=True)
    for part, value in parts.items():
        if isinstance(value, tuple):
            library, class_name, config = value
            (folder / part).mkdir(exist_ok=True)
            names = {"_class_name": class_name} if library == "diffusers" else {"model_type": _TYPES.get(class_name)}
            (folder / part / "config.json").write_text(json.dumps({**names, **config}))
            index[part] = [library, class_name]
        elif value is not None:
            index[part] = value
        else:
            index.pop(part, None)
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder
