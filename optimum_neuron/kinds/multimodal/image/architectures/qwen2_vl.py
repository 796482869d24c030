"""Qwen2-VL: images of any shape as patches, and positions on three axes."""

from __future__ import annotations

import torch

from .....base.transformers_types import PreTrainedModel
from . import grids
from .architecture import Architecture


def _features(model: PreTrainedModel, patches_NPW: torch.Tensor, grid_N3: torch.Tensor) -> torch.Tensor:
    tower = model.model.visual
    places_NP2, real_NP = grids.patch_places(grid_N3, patches_NPW.shape[1], tower.spatial_merge_size)
    angles, mask = grids.patch_angles(tower, places_NP2), grids.equal(real_NP)
    x_NPD = grids.embedded(tower, patches_NPW)
    for block in tower.blocks:
        x_NPD = grids.attended(block, x_NPD, angles, mask)
    return grids.merged(tower.merger, x_NPD)


ARCHITECTURE = Architecture(
    model_types=("qwen2_vl",),
    encoder=("model.visual",),
    features=_features,
    image_tokens=grids.image_tokens,
    trained_size=grids.usual_size,
    problem=grids.size_problem,
    layout="patches",
    inputs=("image_grid_thw", "mm_token_type_ids"),
    positions=grids.image_positions,
    axes=grids.spans_of_axes,
    text_type="qwen2",
)
