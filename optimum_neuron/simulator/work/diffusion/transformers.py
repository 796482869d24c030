"""Diffusion transformers, counted from their configuration: PixArt, Stable Diffusion 3 and Flux, as in diffusers.

Heads and the wide part of each MLP are split over cores by columns, the following matrices by rows, with an all-reduce
behind (Shoeybi et al. 2019); the offsets and scales of adaptive norms are split by columns.

    walk_flux(layers, config, batch=1, height=128, width=128, text_tokens=512)

Legend: an image of `height` x `width` latents is `patches` tokens; `tokens` counts one sequence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..layers import NORM_PASSES, WRITTEN_NORM_PASSES, Layers

STEP_CHANNELS = 256
"""Sines and cosines of the step's number, and of each size of the picture."""
PIXART: Mapping[str, Any] = {
    "num_attention_heads": 16,
    "attention_head_dim": 72,
    "in_channels": 4,
    "out_channels": 8,
    "num_layers": 28,
    "cross_attention_dim": 1152,
    "sample_size": 128,
    "patch_size": 2,
    "caption_channels": 4096,
    "use_additional_conditions": None,
    "norm_type": "ada_norm_single",
}
"""Defaults of missing fields in a PixArt configuration."""
SD3: Mapping[str, Any] = {
    "patch_size": 2,
    "in_channels": 16,
    "out_channels": 16,
    "num_layers": 18,
    "attention_head_dim": 64,
    "num_attention_heads": 18,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 2048,
    "dual_attention_layers": (),
    "qk_norm": None,
}
"""The same of Stable Diffusion 3."""
FLUX: Mapping[str, Any] = {
    "patch_size": 1,
    "in_channels": 64,
    "num_layers": 19,
    "num_single_layers": 38,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 768,
    "guidance_embeds": False,
}
"""The same of Flux."""


def walk_pixart(
    layers: Layers, config: Mapping[str, Any], *, batch: int, height: int, width: int, text_tokens: int
) -> None:
    """Count one denoising step of PixArt (Chen et al. 2023)."""
    chosen = {**PIXART, **config}
    size, heads, patch = chosen["attention_head_dim"], chosen["num_attention_heads"], chosen["patch_size"]
    wide = size * heads
    patches = (height // patch) * (width // patch)
    layers.convolution(batch * patches, chosen["in_channels"], wide, kernel=patch)
    layers.elementwise(batch * patches * wide)
    _step_embedding(layers, batch, wide)
    conditioned = chosen["use_additional_conditions"]
    if conditioned or (conditioned is None and chosen["sample_size"] == 128):
        _step_embedding(layers, 2 * batch, wide // 3)
        _step_embedding(layers, batch, wide // 3)
    layers.elementwise(batch * wide)
    layers.linear(batch, wide, 6 * wide, split="columns")
    _two_products(layers, batch * text_tokens, chosen["caption_channels"], wide, wide)
    tokens = batch * patches
    for _ in range(chosen["num_layers"]):
        layers.elementwise(batch * wide, times=6, parameters=6 * wide)
        _modulated_norm(layers, tokens, wide)
        _attention(layers, batch, heads, size, patches)
        layers.elementwise(tokens * wide, times=2)
        _attention(layers, batch, heads, size, patches, context=(chosen["cross_attention_dim"], text_tokens))
        layers.elementwise(tokens * wide)
        _modulated_norm(layers, tokens, wide)
        _two_products(layers, tokens, wide, 4 * wide, wide)
        layers.elementwise(tokens * wide, times=2)
    layers.elementwise(batch * wide, times=2, parameters=2 * wide)
    _modulated_norm(layers, tokens, wide)
    layers.linear(tokens, wide, patch**2 * chosen["out_channels"])


def walk_sd3(
    layers: Layers, config: Mapping[str, Any], *, batch: int, height: int, width: int, text_tokens: int
) -> None:
    """Count one denoising step of Stable Diffusion 3 (Esser et al. 2024)."""
    chosen = {**SD3, **config}
    size, heads, patch = chosen["attention_head_dim"], chosen["num_attention_heads"], chosen["patch_size"]
    wide, norm_passes = size * heads, WRITTEN_NORM_PASSES if chosen["qk_norm"] else 0
    patches = (height // patch) * (width // patch)
    layers.convolution(batch * patches, chosen["in_channels"], wide, kernel=patch)
    layers.elementwise(batch * patches * wide)
    _step_embedding(layers, batch, wide)
    _two_products(layers, batch, chosen["pooled_projection_dim"], wide, wide)
    layers.linear(batch * text_tokens, chosen["joint_attention_dim"], wide)
    for index in range(chosen["num_layers"]):
        last = index == chosen["num_layers"] - 1
        dual = index in chosen["dual_attention_layers"]
        _offsets(layers, batch, wide, 9 if dual else 6)
        _offsets(layers, batch, wide, 2 if last else 6)
        _joint_block(layers, batch, heads, size, patches, text_tokens, norm_passes=norm_passes, last=last, dual=dual)
    _offsets(layers, batch, wide, 2)
    _modulated_norm(layers, batch * patches, wide)
    layers.linear(batch * patches, wide, patch**2 * chosen["out_channels"])


def walk_flux(
    layers: Layers, config: Mapping[str, Any], *, batch: int, height: int, width: int, text_tokens: int
) -> None:
    """Count one denoising step of Flux; its input channels are 2 x 2 latent patches."""
    chosen = {**FLUX, **config}
    size, heads = chosen["attention_head_dim"], chosen["num_attention_heads"]
    wide = size * heads
    patches = (height // 2) * (width // 2)
    layers.linear(batch * patches, chosen["in_channels"], wide)
    for _ in range(2 if chosen["guidance_embeds"] else 1):
        _step_embedding(layers, batch, wide)
    _two_products(layers, batch, chosen["pooled_projection_dim"], wide, wide)
    layers.linear(batch * text_tokens, chosen["joint_attention_dim"], wide)
    for _ in range(chosen["num_layers"]):
        _offsets(layers, batch, wide, 6)
        _offsets(layers, batch, wide, 6)
        _joint_block(layers, batch, heads, size, patches, text_tokens, norm_passes=NORM_PASSES, last=False, rotary=True)
    tokens = batch * (patches + text_tokens)
    for _ in range(chosen["num_single_layers"]):
        _offsets(layers, batch, wide, 3)
        _modulated_norm(layers, tokens, wide)
        layers.linear(tokens, wide, 4 * wide, split="columns")
        layers.elementwise(4 * tokens * wide, split=True)
        layers.linear(tokens, wide, wide, split="columns", count=3)
        _query_key(layers, tokens, heads, size, norm_passes=NORM_PASSES, rotary=True)
        _scores(layers, batch, heads, size, patches + text_tokens, patches + text_tokens)
        layers.linear(tokens, 5 * wide, wide, split="rows")
        layers.elementwise(tokens * wide, times=2)
    _offsets(layers, batch, wide, 2)
    _modulated_norm(layers, batch * patches, wide)
    channels_out = chosen.get("out_channels") or chosen["in_channels"]
    layers.linear(batch * patches, wide, chosen["patch_size"] ** 2 * channels_out)


def _joint_block(
    layers: Layers,
    batch: int,
    heads: int,
    size: int,
    patches: int,
    text_tokens: int,
    *,
    norm_passes: int,
    last: bool,
    dual: bool = False,
    rotary: bool = False,
) -> None:
    """Image and prompt attend to each other, each with its own weights."""
    wide = heads * size
    for tokens in (batch * patches, batch * text_tokens):
        _modulated_norm(layers, tokens, wide)
        layers.linear(tokens, wide, wide, split="columns", count=3)
        _query_key(layers, tokens, heads, size, norm_passes=norm_passes, rotary=rotary)
    _scores(layers, batch, heads, size, patches + text_tokens, patches + text_tokens)
    for tokens in (batch * patches,) if last else (batch * patches, batch * text_tokens):
        layers.linear(tokens, wide, wide, split="rows")
        layers.elementwise(tokens * wide, times=2)
        if dual and tokens == batch * patches:
            layers.elementwise(tokens * wide, times=2)
            layers.linear(tokens, wide, wide, split="columns", count=3)
            _query_key(layers, tokens, heads, size, norm_passes=norm_passes, rotary=rotary)
            _scores(layers, batch, heads, size, patches, patches)
            layers.linear(tokens, wide, wide, split="rows")
            layers.elementwise(tokens * wide, times=2)
        _modulated_norm(layers, tokens, wide)
        _two_products(layers, tokens, wide, 4 * wide, wide)
        layers.elementwise(tokens * wide, times=2)


def _attention(
    layers: Layers, batch: int, heads: int, size: int, rows: int, context: tuple[int, int] | None = None
) -> None:
    wide = heads * size
    channels, slots = context or (wide, rows)
    layers.linear(batch * rows, wide, wide, split="columns")
    layers.linear(batch * slots, channels, wide, split="columns", count=2)
    _scores(layers, batch, heads, size, rows, slots)
    layers.linear(batch * rows, wide, wide, split="rows")
    layers.elementwise(batch * rows * wide)


def _scores(layers: Layers, batch: int, heads: int, size: int, rows: int, slots: int) -> None:
    layers.attention(batch * math.ceil(heads / layers.num_cores), rows, slots, size)


def _query_key(layers: Layers, tokens: int, heads: int, size: int, *, norm_passes: int, rotary: bool) -> None:
    """Norms of queries and keys, and their rotation: a sign, two products and a sum."""
    local = tokens * math.ceil(heads / layers.num_cores) * size
    for _ in ("query", "key"):
        if norm_passes:
            layers.norm(local, size, passes=norm_passes)
        if rotary:
            layers.elementwise(local, times=4)


def _modulated_norm(layers: Layers, tokens: int, wide: int) -> None:
    layers.norm(tokens * wide)
    layers.elementwise(tokens * wide, times=2)


def _offsets(layers: Layers, batch: int, wide: int, count: int) -> None:
    """Scales, offsets and gates of an adaptive norm."""
    layers.elementwise(batch * wide)
    layers.linear(batch, wide, count * wide, split="columns")


def _two_products(layers: Layers, rows: int, inner: int, middle: int, columns: int) -> None:
    layers.linear(rows, inner, middle, split="columns")
    layers.elementwise(rows * middle, split=True)
    layers.linear(rows, middle, columns, split="rows")


def _step_embedding(layers: Layers, rows: int, wide: int) -> None:
    layers.linear(rows, STEP_CHANNELS, wide)
    layers.elementwise(rows * wide)
    layers.linear(rows, wide, wide)
