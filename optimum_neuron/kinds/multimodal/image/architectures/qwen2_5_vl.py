"""Qwen2.5-VL: images of any shape as patches, most layers of the vision tower with windows, positions on three axes."""

from __future__ import annotations

import dataclasses

import torch

from .....base.transformers_types import PreTrainedModel
from . import grids, qwen2_vl


def _features(model: PreTrainedModel, patches_NPW: torch.Tensor, grid_N3: torch.Tensor) -> torch.Tensor:
    tower = model.model.visual
    num_patches, merge = patches_NPW.shape[1], tower.spatial_merge_size
    places_NP2, real_NP = grids.patch_places(grid_N3, num_patches, merge)
    angles = grids.patch_angles(tower, places_NP2)
    side = tower.window_size // merge // tower.patch_size * merge
    # Windows are numbered by their rows and columns; all padding is in window 0.
    window_NP = (places_NP2[..., 0] // side * num_patches + places_NP2[..., 1] // side + 1) * real_NP
    masks = grids.equal(window_NP), grids.equal(real_NP)
    x_NPD = grids.embedded(tower, patches_NPW)
    for layer, block in enumerate(tower.blocks):
        x_NPD = grids.attended(block, x_NPD, angles, masks[layer in tower.fullatt_block_indexes])
    return grids.merged(tower.merger, x_NPD)


ARCHITECTURE = dataclasses.replace(
    qwen2_vl.ARCHITECTURE,
    model_types=("qwen2_5_vl",),
    features=_features,
    is_uniform=lambda config: False,  # the layers differ in their masks
)
