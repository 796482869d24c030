"""InternVL: a vision transformer whose patches are joined in squares; an image is cut into tiles."""

from __future__ import annotations

from typing import Any

from .....base.transformers_types import PreTrainedConfig
from .architecture import Architecture, pooled_features, trained_size, trained_size_only, with_whole


def _image_tokens(config: PreTrainedConfig, image_size: int) -> int:
    return int(image_size // config.vision_config.patch_size[0] * config.downsample_ratio) ** 2


def _tiles(settings: dict[str, Any]) -> tuple[int | None, int]:
    return with_whole(settings, settings.get("max_patches", 12) if settings.get("crop_to_patches") else 1)


ARCHITECTURE = Architecture(
    model_types=("internvl",),
    encoder=("model.vision_tower", "model.multi_modal_projector"),
    features=pooled_features,
    image_tokens=_image_tokens,
    trained_size=trained_size,
    problem=trained_size_only,
    tiles=_tiles,
    towers=("internvl_vision",),
    is_uniform=lambda config: config.vision_feature_layer == -1,
)
