"""Models of image generation with random weights, at published sizes or reduced, and inputs of one call.

They are what `diffusion` measures: the time of a step depends on sizes and dtypes only. It does not depend on this
package, so that a process with another Python can import it.

    save_model("unet", folder, dtype="bfloat16", reduced=False)
    model, inputs = load_model("unet", folder, dtype="float32"), inputs_of("unet", dtype="float32")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

NAMES = ("unet", "transformer", "vae")

_UNET = {"sample_size": 64, "cross_attention_dim": 768, "attention_head_dim": 8}
"""Stable Diffusion 1.5: 860 million parameters."""
_TRANSFORMER = {
    "in_channels": 64,
    "num_layers": 4,
    "num_single_layers": 6,
    "attention_head_dim": 64,
    "num_attention_heads": 10,
    "joint_attention_dim": 768,
    "pooled_projection_dim": 768,
    "axes_dims_rope": [16, 24, 24],
}
"""As Flux, of 99 million parameters."""
_VAE = {
    "block_out_channels": [128, 256, 512, 512],
    "layers_per_block": 2,
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
}
"""Stable Diffusion 1.5."""
_REDUCED = {
    "unet": {"block_out_channels": [64, 128, 256, 256], "layers_per_block": 1},
    "transformer": {"num_layers": 1, "num_single_layers": 2, "num_attention_heads": 4},
    "vae": {"block_out_channels": [32, 64, 128, 128]},
}
_KINDS = {
    "unet": ("UNet2DConditionModel", _UNET, "forward"),
    "transformer": ("FluxTransformer2DModel", _TRANSFORMER, "forward"),
    "vae": ("AutoencoderKL", _VAE, "decode"),
}
SIDE = 32
"""Latents of a side: pictures have 256 pixels."""
PROMPT_TOKENS = 77


def method_of(name: str) -> str:
    """Return the method that a pipeline calls."""
    return _KINDS[name][2]


def save_model(name: str, folder: Path, *, dtype: str, reduced: bool) -> None:
    """Write a model with random weights."""
    import diffusers
    import torch

    kind, sizes, _ = _KINDS[name]
    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        model = getattr(diffusers, kind)(**sizes | (_REDUCED[name] if reduced else {}))
    finally:
        torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)


def load_model(name: str, folder: Path, *, dtype: str) -> Any:
    """Return a written model."""
    import diffusers
    import torch

    return getattr(diffusers, _KINDS[name][0]).from_pretrained(folder, torch_dtype=getattr(torch, dtype)).eval()


def inputs_of(name: str, *, dtype: str) -> dict[str, Any]:
    """Return the arguments of one call."""
    import torch

    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(getattr(torch, dtype))

    if name == "unet":
        text = numbers(2, PROMPT_TOKENS, 768)  # two rows, for guidance
        return {"sample": numbers(2, 4, SIDE, SIDE), "timestep": torch.tensor(500.0), "encoder_hidden_states": text}
    if name == "vae":
        return {"z": numbers(1, 4, SIDE, SIDE)}
    side = SIDE // 2  # a token has four latents
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    places = torch.stack([torch.zeros_like(rows), rows, columns], dim=-1).reshape(-1, 3)
    return {
        "hidden_states": numbers(1, side * side, 64),
        "encoder_hidden_states": numbers(1, PROMPT_TOKENS, 768),
        "pooled_projections": numbers(1, 768),
        "timestep": torch.tensor([0.5]).to(getattr(torch, dtype)),
        "img_ids": places.float(),
        "txt_ids": torch.zeros(PROMPT_TOKENS, 3),
    }
