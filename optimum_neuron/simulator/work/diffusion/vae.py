"""Autoencoders of latent diffusion, counted from their configuration: diffusers' `AutoencoderKL` (Rombach et al. 2022).

walk_decoder(layers, config, batch=1, height=64, width=64)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..layers import Layers

VAE_DEFAULTS: Mapping[str, Any] = {
    "in_channels": 3,
    "out_channels": 3,
    "block_out_channels": (64,),
    "layers_per_block": 1,
    "latent_channels": 4,
    "use_quant_conv": True,
    "use_post_quant_conv": True,
    "mid_block_add_attention": True,
}
"""Defaults of missing configuration fields."""


def scale_of(config: Mapping[str, Any]) -> int:
    """Pixels for each latent, along an axis."""
    return int(2 ** (len(config.get("block_out_channels", VAE_DEFAULTS["block_out_channels"])) - 1))


def walk_decoder(layers: Layers, config: Mapping[str, Any], *, batch: int, height: int, width: int) -> None:
    """Count latents to pictures; `height` and `width` are in latents."""
    chosen = {**VAE_DEFAULTS, **config}
    channels = tuple(reversed(chosen["block_out_channels"]))
    latents, positions, last = chosen["latent_channels"], batch * height * width, channels[0]
    if chosen["use_post_quant_conv"]:
        layers.convolution(positions, latents, latents, kernel=1)
    layers.convolution(positions, latents, last)
    _middle(layers, last, batch, positions, attends=chosen["mid_block_add_attention"])
    for index, made in enumerate(channels):
        for _ in range(chosen["layers_per_block"] + 1):
            _resnet(layers, last, made, positions)
            last = made
        if index < len(channels) - 1:
            positions *= 4
            layers.elementwise(positions * last)
            layers.convolution(positions, last, last)
    layers.normed_convolution(positions, last, chosen["out_channels"])


def walk_encoder(layers: Layers, config: Mapping[str, Any], *, batch: int, height: int, width: int) -> None:
    """Count pictures to latents; `height` and `width` are in latents."""
    chosen = {**VAE_DEFAULTS, **config}
    channels = tuple(chosen["block_out_channels"])
    scale, latents, last = scale_of(chosen), 2 * chosen["latent_channels"], channels[0]
    positions = batch * height * width * scale**2
    layers.convolution(positions, chosen["in_channels"], last)
    for index, made in enumerate(channels):
        for _ in range(chosen["layers_per_block"]):
            _resnet(layers, last, made, positions)
            last = made
        if index < len(channels) - 1:
            positions //= 4
            layers.convolution(positions, last, last)
    _middle(layers, last, batch, positions, attends=chosen["mid_block_add_attention"])
    layers.normed_convolution(positions, last, latents)
    if chosen["use_quant_conv"]:
        layers.convolution(positions, latents, latents, kernel=1)


def _resnet(layers: Layers, channels_in: int, channels_out: int, positions: int) -> None:
    layers.normed_convolution(positions, channels_in, channels_out)
    layers.normed_convolution(positions, channels_out, channels_out)
    if channels_in != channels_out:
        layers.convolution(positions, channels_in, channels_out, kernel=1)
    layers.elementwise(positions * channels_out, times=2)


def _middle(layers: Layers, channels: int, batch: int, positions: int, *, attends: bool) -> None:
    _resnet(layers, channels, channels, positions)
    if attends:
        rows = positions // batch
        layers.norm(positions * channels, 2 * channels)
        layers.linear(positions, channels, channels, count=3)
        layers.attention(batch, rows, rows, channels)
        layers.linear(positions, channels, channels)
        layers.elementwise(positions * channels, times=2)
    _resnet(layers, channels, channels, positions)
