"""Tiny random components of diffusion pipelines: U-Nets, transformers, autoencoders, encoders, tokenizers.

A component is `(class name, options)`; `build` makes one with random weights from a seed. It does not know pipelines:
`tests/tiny_pipelines/table.py` combines components. An image has 32 pixels a side and 16 latents, a prompt 16 tokens.

    >>> build("UNet2DConditionModel", UNET, seed=0).config.sample_size
    16
"""

from __future__ import annotations

from typing import Any

TOKENS, SIDE = 16, 32

_ATTENTION_DOWN = {"down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"]}
_ATTENTION = _ATTENTION_DOWN | {"up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"]}
_UNET = {"block_out_channels": [16, 32], "layers_per_block": 1, "norm_num_groups": 8, "sample_size": 16}
UNET: dict[str, Any] = _UNET | _ATTENTION | {"cross_attention_dim": 32, "attention_head_dim": [2, 4]}
_TEXT_TIME = {"addition_embed_type": "text_time", "addition_time_embed_dim": 8, "use_linear_projection": True}
UNET_XL: dict[str, Any] = UNET | _TEXT_TIME | {"transformer_layers_per_block": [1, 2], "cross_attention_dim": 64}
UNET_XL |= {"projection_class_embeddings_input_dim": 6 * 8 + 32}
UNET_REFINER: dict[str, Any] = UNET_XL | {
    "cross_attention_dim": 32,
    "projection_class_embeddings_input_dim": 5 * 8 + 32,
}
UNET_UNCONDITIONAL: dict[str, Any] = _UNET | {"attention_head_dim": 4}
UNET_UNCONDITIONAL |= {"down_block_types": ["DownBlock2D", "AttnDownBlock2D"]}
UNET_UNCONDITIONAL |= {"up_block_types": ["AttnUpBlock2D", "UpBlock2D"]}

_CONTROL = {"conditioning_embedding_out_channels": [8, 16]} | _ATTENTION_DOWN
CONTROLNET: dict[str, Any] = {k: v for k, v in UNET.items() if k not in ("up_block_types", "sample_size")} | _CONTROL
CONTROLNET_XL: dict[str, Any] = {k: v for k, v in UNET_XL.items() if k in {*CONTROLNET, *_TEXT_TIME}} | _CONTROL
CONTROLNET_XL |= {"projection_class_embeddings_input_dim": 6 * 8 + 32, "transformer_layers_per_block": [1, 2]}

VAE: dict[str, Any] = {"block_out_channels": [8, 16], "norm_num_groups": 4, "latent_channels": 4, "sample_size": SIDE}
VAE |= {"down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2}
VAE_SHIFTED: dict[str, Any] = VAE | {"use_quant_conv": False, "use_post_quant_conv": False, "shift_factor": 0.06}
VAE_SHIFTED |= {"scaling_factor": 1.5}
VAE_16: dict[str, Any] = VAE_SHIFTED | {"latent_channels": 16}
VAE_VIDEO: dict[str, Any] = {"latent_channels": 8, "patch_size": 1, "patch_size_t": 1}
VAE_VIDEO |= {f"{side}block_out_channels": [8, 8, 8, 8] for side in ("", "decoder_")}
VAE_VIDEO |= {f"{side}layers_per_block": [1, 1, 1, 1, 1] for side in ("", "decoder_")}
VAE_VIDEO |= {f"{side}spatio_temporal_scaling": [True, True, False, False] for side in ("", "decoder_")}

PIXART: dict[str, Any] = {"sample_size": 16, "num_layers": 2, "attention_head_dim": 8, "num_attention_heads": 3}
PIXART |= {"caption_channels": 64, "cross_attention_dim": 24, "in_channels": 4, "out_channels": 8}
SD3: dict[str, Any] = {"sample_size": 16, "num_layers": 2, "attention_head_dim": 8, "num_attention_heads": 4}
SD3 |= {"in_channels": 16, "out_channels": 16, "pos_embed_max_size": 32}
SD3 |= {"caption_projection_dim": 32, "joint_attention_dim": 64, "pooled_projection_dim": 64}
FLUX: dict[str, Any] = {"in_channels": 16, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16}
FLUX |= {"num_attention_heads": 2, "joint_attention_dim": 64, "pooled_projection_dim": 32}
FLUX |= {"axes_dims_rope": [4, 4, 8], "guidance_embeds": True}
LTX: dict[str, Any] = {"in_channels": 8, "out_channels": 8, "num_layers": 1, "num_attention_heads": 4}
LTX |= {"attention_head_dim": 8, "cross_attention_dim": 32, "caption_channels": 64}

_CLIP_SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
CLIP: dict[str, Any] = _CLIP_SIZES | {"max_position_embeddings": TOKENS, "projection_dim": 32}
CLIP_VISION: dict[str, Any] = _CLIP_SIZES | {"image_size": 16, "patch_size": 8, "projection_dim": 24}
T5: dict[str, Any] = {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4}
T5 |= {"feed_forward_proj": "gated-gelu"}

_CLIP_SPECIAL = ["<|startoftext|>", "<|endoftext|>"]
_CLIP_ALPHABET = [chr(code) for code in range(33, 127)]
_CLIP_VOCABULARY = [*_CLIP_SPECIAL, *_CLIP_ALPHABET, *(letter + "</w>" for letter in _CLIP_ALPHABET)]
_T5_VOCABULARY = ["<pad>", "</s>", "<unk>", "\N{LOWER ONE EIGHTH BLOCK}", *_CLIP_ALPHABET]


def clip_tokenizer(*, pad_token: str = "<|endoftext|>") -> Any:
    """A tokenizer of printable characters, with CLIP's ends of words."""
    from transformers import CLIPTokenizer

    vocabulary = {token: index for index, token in enumerate(_CLIP_VOCABULARY)}
    return CLIPTokenizer(vocab=vocabulary, merges=[], pad_token=pad_token, model_max_length=TOKENS)


def t5_tokenizer() -> Any:
    """A tokenizer of printable characters with T5's special tokens."""
    from transformers import T5Tokenizer

    vocabulary = [(token, -float(index > 2)) for index, token in enumerate(_T5_VOCABULARY)]
    return T5Tokenizer(vocab=vocabulary, extra_ids=0, model_max_length=TOKENS)


def image_processor(*, side: int = 16) -> Any:
    """What prepares an image for a tiny CLIP."""
    from transformers import CLIPImageProcessor

    return CLIPImageProcessor(size={"shortest_edge": side}, crop_size={"height": side, "width": side})


def build(class_name: str, options: dict[str, Any], *, seed: int) -> Any:
    """Make a component; a model has random weights from `seed`.

    Args:
        class_name: A class of diffusers or transformers.
        options: Its configuration.
        seed: The seed of its weights.
    """
    import diffusers
    import torch
    import transformers

    makers = {"CLIPTokenizer": clip_tokenizer, "T5Tokenizer": t5_tokenizer, "CLIPImageProcessor": image_processor}
    if class_name in makers:
        return makers[class_name](**options)
    torch.manual_seed(seed)
    if class_name == "StableDiffusionSafetyChecker":
        return randomize(_safety_checker(options))
    if class_name in ("CLIPTextModel", "CLIPTextModelWithProjection"):
        options = {"vocab_size": len(_CLIP_VOCABULARY), "bos_token_id": 0, "eos_token_id": 1} | options
    if class_name == "T5EncoderModel":
        options = {"vocab_size": len(_T5_VOCABULARY)} | options
    if hasattr(diffusers, class_name):
        made = getattr(diffusers, class_name)(**options)
    else:
        class_ = getattr(transformers, class_name)
        made = class_(class_.config_class(**options))
    return randomize(made) if isinstance(made, torch.nn.Module) else made


def _safety_checker(options: dict[str, Any]) -> Any:
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
    from transformers import CLIPConfig

    return StableDiffusionSafetyChecker(CLIPConfig(vision_config=CLIP_VISION, projection_dim=24, **options))


def randomize(model: Any) -> Any:
    """Move every parameter away from its initial value, so that a test notices a norm or bias that is left out."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.1 if parameter.ndim < 2 else max(0.02, 0.5 * parameter[0].numel() ** -0.5)
            parameter.add_(torch.randn_like(parameter), alpha=scale)
    return model.eval()
