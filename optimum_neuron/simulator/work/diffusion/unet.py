"""U-Nets of latent diffusion (Rombach et al. 2022; SDXL: Podell et al. 2023), counted from their configuration.

It covers diffusers' `UNet2DConditionModel`, as Stable Diffusion 1, 2, and XL use it. A configuration that asks for more
is an error that names the field.

    walk_unet(layers, config, batch=2, height=64, width=64, text_tokens=77)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..layers import Layers

UNET_DEFAULTS: Mapping[str, Any] = {
    "in_channels": 4,
    "out_channels": 4,
    "block_out_channels": (320, 640, 1280, 1280),
    "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
    "mid_block_type": "UNetMidBlock2DCrossAttn",
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    "layers_per_block": 2,
    "attention_head_dim": 8,
    "cross_attention_dim": 1280,
    "transformer_layers_per_block": 1,
    "use_linear_projection": False,
    "addition_embed_type": None,
    "projection_class_embeddings_input_dim": None,
    "time_cond_proj_dim": None,
}
"""Defaults of missing configuration fields."""

ONLY: Mapping[str, tuple[Any, ...]] = {
    "mid_block_type": ("UNetMidBlock2DCrossAttn", None),
    "addition_embed_type": (None, "text_time"),
    "only_cross_attention": (None, False),
    "encoder_hid_dim_type": (None,),
    "class_embed_type": (None,),
    "num_class_embeds": (None,),
    "dual_cross_attention": (None, False),
    "resnet_time_scale_shift": (None, "default"),
    "time_embedding_type": (None, "positional"),
    "attention_type": (None, "default"),
    "cross_attention_norm": (None,),
    "reverse_transformer_layers_per_block": (None,),
}
"""Values that are counted, of fields that change the structure."""

BLOCKS = ("DownBlock2D", "CrossAttnDownBlock2D", "UpBlock2D", "CrossAttnUpBlock2D")
"""Blocks that are counted."""


def uncounted(config: Mapping[str, Any]) -> list[str]:
    """Configured features that are not counted, as text."""
    problems = [
        f"{name}={config[name]!r}" for name, known in ONLY.items() if name in config and config[name] not in known
    ]
    for side in ("down_block_types", "up_block_types"):
        problems += [block for block in config.get(side, ()) if block not in BLOCKS]
    return problems


@dataclasses.dataclass
class _Walk:
    layers: Layers
    batch: int
    height: int
    width: int
    text_tokens: int
    time_channels: int

    @property
    def positions(self) -> int:
        return self.batch * self.height * self.width

    def resnet(self, channels_in: int, channels_out: int) -> None:
        layers, made = self.layers, self.positions * channels_out
        layers.normed_convolution(self.positions, channels_in, channels_out)
        layers.elementwise(self.batch * self.time_channels)
        layers.linear(self.batch, self.time_channels, channels_out)
        layers.elementwise(made)
        layers.normed_convolution(self.positions, channels_out, channels_out)
        if channels_in != channels_out:
            layers.convolution(self.positions, channels_in, channels_out, kernel=1)
        layers.elementwise(made, times=2)

    def transformer(self, channels: int, heads: int, text_channels: int, depth: int, *, linear: bool) -> None:
        layers, made = self.layers, self.positions * channels
        layers.norm(made, 2 * channels)
        self._projection(channels, linear=linear)
        for _ in range(depth):
            self._attention(channels, heads, channels, self.height * self.width)
            self._attention(channels, heads, text_channels, self.text_tokens)
            layers.norm(made, 2 * channels)
            layers.linear(self.positions, channels, 8 * channels)
            layers.elementwise(4 * made, times=2)
            layers.linear(self.positions, 4 * channels, channels)
            layers.elementwise(made)
        self._projection(channels, linear=linear)
        layers.elementwise(made)

    def _projection(self, channels: int, *, linear: bool) -> None:
        if linear:
            self.layers.linear(self.positions, channels, channels)
        else:
            self.layers.convolution(self.positions, channels, channels, kernel=1)

    def _attention(self, channels: int, heads: int, context_channels: int, slots: int) -> None:
        layers, made, rows = self.layers, self.positions * channels, self.height * self.width
        layers.norm(made, 2 * channels)
        layers.linear(self.positions, channels, channels, bias=False)
        layers.linear(self.batch * slots, context_channels, channels, bias=False, count=2)
        layers.attention(self.batch * heads, rows, slots, channels // heads)
        layers.linear(self.positions, channels, channels)
        layers.elementwise(made, times=2)


def walk_unet(
    layers: Layers, config: Mapping[str, Any], *, batch: int, height: int, width: int, text_tokens: int
) -> None:
    """Count one denoising step of a configuration without `uncounted` parts.

    `batch` has both halves of guidance where they run together; `height` and `width` are in latents.
    """
    chosen = {**UNET_DEFAULTS, **config}
    channels = tuple(chosen["block_out_channels"])
    num_blocks = len(channels)
    heads = _each(chosen.get("num_attention_heads") or chosen["attention_head_dim"], num_blocks)
    text = _each(chosen["cross_attention_dim"], num_blocks)
    depths = _each(chosen["transformer_layers_per_block"], num_blocks)
    num_resnets = _each(chosen["layers_per_block"], num_blocks)
    linear = bool(chosen["use_linear_projection"])
    walk = _Walk(layers, batch, height, width, text_tokens, time_channels=4 * channels[0])

    def attend(index: int) -> None:
        walk.transformer(channels[index], heads[index], text[index], depths[index], linear=linear)

    _embeddings(walk, chosen, channels[0])
    layers.convolution(walk.positions, chosen["in_channels"], channels[0])
    skips, last = [channels[0]], channels[0]
    for index, block in enumerate(chosen["down_block_types"]):
        for _ in range(num_resnets[index]):
            walk.resnet(last, channels[index])
            last = channels[index]
            if block.startswith("CrossAttn"):
                attend(index)
            skips.append(last)
        if index < num_blocks - 1:
            walk.height, walk.width = -(-walk.height // 2), -(-walk.width // 2)
            layers.convolution(walk.positions, last, last)
            skips.append(last)
    if chosen["mid_block_type"] is not None:
        walk.resnet(last, last)
        attend(num_blocks - 1)
        walk.resnet(last, last)
    for index, block in zip(reversed(range(num_blocks)), chosen["up_block_types"], strict=True):
        for _ in range(num_resnets[index] + 1):
            walk.resnet(last + skips.pop(), channels[index])
            last = channels[index]
            if block.startswith("CrossAttn"):
                attend(index)
        if index:
            walk.height, walk.width = 2 * walk.height, 2 * walk.width
            layers.elementwise(walk.positions * last)
            layers.convolution(walk.positions, last, last)
    layers.normed_convolution(walk.positions, last, chosen["out_channels"])


def _embeddings(walk: _Walk, config: Mapping[str, Any], channels: int) -> None:
    """The step's number, and for SDXL the pooled prompt and the sizes of the picture."""
    layers, rows, wide = walk.layers, walk.batch, walk.time_channels
    if config["time_cond_proj_dim"]:
        layers.linear(rows, config["time_cond_proj_dim"], channels, bias=False)
    inputs = [channels]
    if config["addition_embed_type"] == "text_time":
        inputs.append(config["projection_class_embeddings_input_dim"])
    for inner in inputs:
        layers.linear(rows, inner, wide)
        layers.elementwise(rows * wide)
        layers.linear(rows, wide, wide)


def _each(value: Any, num_blocks: int) -> tuple[Any, ...]:
    """A field that is one value for all blocks, or a list with one for each."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,) * num_blocks
