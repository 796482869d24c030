"""Images as patches on grids of any shape, for Qwen's vision-language models: positions, windows, and the blocks.

A graph takes images of so many patches at most, of any height and width: patches beyond an image's own are padding,
which only padding attends to. transformers splits one long sequence of patches by image and by window; here masks say
the same.

Shape legend: N images, P patches, K heads, H head width, D hidden, R sequences, T columns, A axes: time, height, width.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional as F

from .....base.model_facts import facts_of
from .....base.transformers_types import PreTrainedConfig


def patch_places(grid_N3: torch.Tensor, num_patches: int, merge: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and column [N, P, 2] of patches, which come in squares of `merge` by `merge`, and which patches are real."""
    index_P = torch.arange(num_patches)
    squares_N1 = (grid_N3[:, 2:] // merge).clamp(min=1)
    square_P = index_P // merge**2
    rows = square_P // squares_N1 * merge + index_P // merge % merge
    columns = square_P % squares_N1 * merge + index_P % merge
    return torch.stack((rows, columns), -1), index_P < grid_N3[:, 1:2] * grid_N3[:, 2:]


def patch_angles(tower: Any, places_NP2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [N, P, 1, H] of the rotary positions of patches: rows, then columns, twice."""
    angles = (places_NP2[..., None].float() * tower.rotary_pos_emb.inv_freq.float()).flatten(2)
    angles = torch.cat((angles, angles), -1)[:, :, None]
    return angles.cos(), angles.sin()


def equal(label_NP: torch.Tensor) -> torch.Tensor:
    """A mask [N, 1, P, P] with which patches see those with the same label."""
    return (label_NP[:, :, None] == label_NP[:, None])[:, None]


def embedded(tower: Any, patches_NPW: torch.Tensor) -> torch.Tensor:
    """Embeddings [N, P, D] of patches: the convolution's windows are the patches."""
    projection = tower.patch_embed.proj
    return F.linear(patches_NPW, projection.weight.flatten(1), projection.bias)


def attended(
    block: Any, x_NPD: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor], mask_N1PP: torch.Tensor
) -> torch.Tensor:
    """Run a block of a vision tower on images of P patches each."""
    attention = block.attn
    qkv = attention.qkv(block.norm1(x_NPD)).unflatten(-1, (3, attention.num_heads, -1))
    query, key, value = qkv.unbind(2)
    query, key = _rotated(query, *angles), _rotated(key, *angles)
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask_N1PP)
    x_NPD = x_NPD + attention.proj(mixed.transpose(1, 2).flatten(2))
    return x_NPD + block.mlp(block.norm2(x_NPD))


def merged(merger: Any, x_NPD: torch.Tensor) -> torch.Tensor:
    """Features [N, L, D] of squares of patches."""
    return merger(x_NPD.flatten(0, 1)).unflatten(0, (x_NPD.shape[0], -1))


def _rotated(x_NPKH: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    x = x_NPKH.float()
    first, second = x.chunk(2, -1)
    return (x * cos + torch.cat((-second, first), -1) * sin).to(x_NPKH.dtype)


def image_positions(
    types_RT: torch.Tensor, mask_RT: torch.Tensor, grids_N3: torch.Tensor, config: PreTrainedConfig
) -> torch.Tensor:
    """Positions [R, T, A] of tokens: text counts on, images have rows and columns, and text goes on behind the longer.

    The types are 1 for images. Each run of image tokens is one image, and takes the next grid.
    """
    merge = config.vision_config.spatial_merge_size
    grids: Iterator[list[int]] = iter(grids_N3.tolist())
    positions_RTA = types_RT.new_zeros(*types_RT.shape, 3)
    for row, mask_T in enumerate(mask_RT.bool()):
        parts, start = [], 0
        for is_image, run in itertools.groupby((types_RT[row][mask_T] == 1).tolist()):
            length = len(list(run))
            if not is_image:
                parts.append(torch.arange(length)[:, None].expand(-1, 3) + start)
                start += length
                continue
            _, height, width = next(grids)
            rows, columns = torch.arange(height // merge), torch.arange(width // merge)
            parts.append(torch.cartesian_prod(torch.zeros(1, dtype=torch.int64), rows, columns) + start)
            start += max(height, width) // merge
        positions_RTA[row][mask_T] = torch.cat(parts)
    return positions_RTA


def spans_of_axes(text: PreTrainedConfig) -> tuple[int, ...]:
    """Axis of each rotary frequency in Qwen2-VL: those of time first, then of height, then of width."""
    sections = text.rope_parameters.get("mrope_section", [16, 24, 24])
    return tuple(index % 3 for index, length in enumerate(sections) for _ in range(length))


def alternating_axes(text: PreTrainedConfig) -> tuple[int, ...]:
    """Axis of each rotary frequency in Qwen3-VL: the axes take turns while they have frequencies left, then time."""
    sections = text.rope_parameters.get("mrope_section", [24, 20, 20])
    num_frequencies = (facts_of(text).head_dim or text.hidden_size // text.num_attention_heads) // 2
    return tuple(index % 3 if index < sections[index % 3] * 3 else 0 for index in range(num_frequencies))


def image_tokens(config: PreTrainedConfig, image_size: int) -> int:
    """Tokens of an image of so many patches."""
    return (image_size // (config.vision_config.patch_size * config.vision_config.spatial_merge_size)) ** 2


def size_problem(config: PreTrainedConfig, image_size: int) -> str | None:
    """Say that a square image of so many pixels has no whole squares of patches, or None."""
    unit = config.vision_config.patch_size * config.vision_config.spatial_merge_size
    return f"a multiple of {unit}: patches are joined in squares" if image_size % unit else None


def usual_size(config: PreTrainedConfig) -> int:
    """The side of a square image of about 256 tokens; processors allow images of many more."""
    return 16 * config.vision_config.patch_size * config.vision_config.spatial_merge_size
