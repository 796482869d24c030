"""Tiny components of more pipelines: only `coverage.py` runs them, because the tests take one row of each kind.

A row names the parts that other rows lack; `FAMILIES` are whole sets, whose parts fit each other.
"""

from __future__ import annotations

from typing import Any

from tests.tiny_pipelines import components as c
from tests.tiny_pipelines.table import PIPELINES, Part

_NUM_T5_TOKENS = 98
_UMT5 = ("UMT5EncoderModel", c.T5 | {"vocab_size": _NUM_T5_TOKENS})
_WAN: dict[str, Any] = {"num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 16, "out_channels": 16}
_WAN |= {"text_dim": 64, "freq_dim": 16, "ffn_dim": 48, "num_layers": 2, "rope_max_seq_len": 32}
_WAN_VAE: dict[str, Any] = {"base_dim": 4, "z_dim": 16, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 1}
_CHROMA: dict[str, Any] = c.FLUX | {"guidance_embeds": None, "pooled_projection_dim": None}
_CHROMA = {key: value for key, value in _CHROMA.items() if value is not None}
_CHROMA |= {"approximator_num_channels": 8, "approximator_hidden_dim": 32, "approximator_layers": 1}
_AURA: dict[str, Any] = {"sample_size": 16, "num_mmdit_layers": 1, "num_single_dit_layers": 1, "attention_head_dim": 16}
_AURA |= {"num_attention_heads": 2, "joint_attention_dim": 64, "caption_projection_dim": 32, "pos_embed_max_size": 64}
_COGVIDEO: dict[str, Any] = {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 4}
_COGVIDEO |= {"time_embed_dim": 8, "text_embed_dim": 64, "num_layers": 2, "sample_width": 4, "sample_height": 4}
_COGVIDEO |= {"sample_frames": 9, "max_text_seq_length": c.TOKENS}
_COGVIDEO_VAE: dict[str, Any] = {"block_out_channels": [8, 8, 8, 8], "latent_channels": 4, "layers_per_block": 1}
_COGVIDEO_VAE |= {"norm_num_groups": 2}
_COGVIEW: dict[str, Any] = {"in_channels": 16, "out_channels": 16, "num_layers": 2, "attention_head_dim": 8}
_COGVIEW |= {"num_attention_heads": 4, "text_embed_dim": 64, "time_embed_dim": 8, "condition_dim": 4, "sample_size": 16}
_DIT: dict[str, Any] = {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2, "sample_size": 16}
_DIT |= {"norm_num_groups": 4, "out_channels": 8}
_UNION: dict[str, Any] = c.CONTROLNET_XL | {"num_trans_channel": 16, "num_proj_channel": 16, "num_trans_head": 2}
_MOTION: dict[str, Any] = {"block_out_channels": [16, 32], "motion_layers_per_block": 1, "motion_norm_num_groups": 8}
_MOTION |= {"motion_num_attention_heads": 2}
_VQ: dict[str, Any] = {"block_out_channels": [8, 16], "norm_num_groups": 4, "latent_channels": 4, "sample_size": c.SIDE}
_VQ |= {"down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2}
_SD, _SDXL, _SD3, _FLUX, _LTX = (PIPELINES[name].parts for name in ("sd", "sdxl", "sd3", "flux", "ltx"))
_T5 = {"tokenizer": ("T5Tokenizer", {}), "text_encoder": ("T5EncoderModel", c.T5)}
_FLOW = _SD3["scheduler"]

FAMILIES: dict[str, dict[str, Part | list[Part] | None]] = {
    "wan": _T5
    | {"text_encoder": _UMT5, "transformer": ("WanTransformer3DModel", _WAN), "vae": ("AutoencoderKLWan", _WAN_VAE)}
    | {"scheduler": ("UniPCMultistepScheduler", {"prediction_type": "flow_prediction", "use_flow_sigmas": True})},
    "chroma": _T5
    | {"transformer": ("ChromaTransformer2DModel", _CHROMA), "vae": _FLUX["vae"], "scheduler": _FLOW}
    | {"image_encoder": None},
    "sd3-controlnet": _SD3
    | {"controlnet": ("SD3ControlNetModel", {key: c.SD3[key] for key in c.SD3 if key != "out_channels"})},
    "flux-controlnet": _FLUX | {"controlnet": ("FluxControlNetModel", c.FLUX)},
    "sdxl-union": _SDXL | {"controlnet": ("ControlNetUnionModel", _UNION)},
    "sd-adapter": _SD | {"adapter": ("T2IAdapter", {"channels": [16, 32], "num_res_blocks": 1, "downscale_factor": 2})},
    "sdxl-adapter": _SDXL
    | {"adapter": ("T2IAdapter", {"channels": [16, 32], "num_res_blocks": 1, "downscale_factor": 2})},
    "aura": _T5
    | {"text_encoder": _UMT5, "transformer": ("AuraFlowTransformer2DModel", _AURA), "vae": _SD["vae"]}
    | {"scheduler": _FLOW},
    "cogvideo": _T5
    | {"transformer": ("CogVideoXTransformer3DModel", _COGVIDEO), "vae": ("AutoencoderKLCogVideoX", _COGVIDEO_VAE)}
    | {"scheduler": ("CogVideoXDDIMScheduler", {})},
    "cogview": _T5
    | {"transformer": ("CogView3PlusTransformer2DModel", _COGVIEW), "vae": _SD3["vae"]}
    | {"scheduler": ("CogVideoXDDIMScheduler", {})},
    "dit": {"transformer": ("DiTTransformer2DModel", _DIT), "vae": _SD["vae"], "scheduler": _SD["scheduler"]},
    "animate": _SD | {"motion_adapter": ("MotionAdapter", _MOTION)},
    "ldm": {"vqvae": ("VQModel", _VQ), "unet": PIPELINES["ddpm"].parts["unet"], "scheduler": _SD["scheduler"]},
}
"""Sets of components by the name of a family."""
