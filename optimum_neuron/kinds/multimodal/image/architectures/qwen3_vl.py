"""Qwen3-VL: as Qwen2-VL, with learned positions of patches, and more features for the decoder's first layers."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from .....base.transformers_types import PreTrainedModel
from . import grids, qwen2_vl


def _features(model: PreTrainedModel, patches_NPW: torch.Tensor, grid_N3: torch.Tensor) -> torch.Tensor:
    """Features [N, L, D] of the last layer, and behind them those of `deepstack_visual_indexes`."""
    tower = model.model.visual
    places_NP2, real_NP = grids.patch_places(grid_N3, patches_NPW.shape[1], tower.spatial_merge_size)
    angles, mask = grids.patch_angles(tower, places_NP2), grids.equal(real_NP)
    x_NPD = grids.embedded(tower, patches_NPW)
    x_NPD = x_NPD + _learned_positions(tower, places_NP2, grid_N3).to(x_NPD.dtype)
    deeper: list[torch.Tensor] = []
    for layer, block in enumerate(tower.blocks):
        x_NPD = grids.attended(block, x_NPD, angles, mask)
        if layer in tower.deepstack_visual_indexes:
            merger = tower.deepstack_merger_list[len(deeper)]
            deeper.append(grids.merged(merger, x_NPD))
    return torch.cat((grids.merged(tower.merger, x_NPD), *deeper), -1)


def _learned_positions(tower: Any, places_NP2: torch.Tensor, grid_N3: torch.Tensor) -> torch.Tensor:
    """Embeddings [N, P, D] of positions, between the four nearest of a square table whose corners are the image's."""
    side = tower.num_grid_per_side
    last_N12 = (grid_N3[:, None, 1:] - 1).clamp(min=1)
    place = places_NP2.float() * (side - 1) / last_N12
    low = place.floor().clamp(0, side - 1)
    share = place - low
    result: Any = 0
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        corner = (low + torch.tensor((row, column))).clamp(max=side - 1).long()
        weight = torch.where(torch.tensor((row, column)) == 1, share, 1 - share).prod(-1, keepdim=True)
        result = result + tower.pos_embed(corner[..., 0] * side + corner[..., 1]) * weight
    return result


def _expected(model: PreTrainedModel, outputs: Any) -> torch.Tensor:
    return torch.cat((torch.cat(list(outputs.pooler_output)), *map(_joined, outputs.deepstack_features)), -1)


def _joined(features: Any) -> torch.Tensor:
    return features if isinstance(features, torch.Tensor) else torch.cat(list(features))


ARCHITECTURE = dataclasses.replace(
    qwen2_vl.ARCHITECTURE,
    model_types=("qwen3_vl",),
    features=_features,
    expected=_expected,
    axes=grids.alternating_axes,
    text_type="qwen3",
    num_added=lambda config: len(config.vision_config.deepstack_visual_indexes),
    is_uniform=lambda config: False,  # some layers have a merger behind them
)
