"""Idefics3 and SmolVLM: patches are joined in squares; an image is cut into tiles.

Shape legend: N images, C channels, H height, W width, L tokens of an image, D hidden of the decoder.
"""

from __future__ import annotations

from typing import Any

from .....base.transformers_types import PreTrainedConfig, PreTrainedModel
from .architecture import Architecture


def _features(model: PreTrainedModel, pixels_NCHW: Any, mask_NHW: Any) -> Any:
    """Features [N, L, D]; patches without any real pixel are not attended to."""
    vision, connector = model.model.vision_model, model.model.connector
    patch = vision.patch_size
    real = mask_NHW.unflatten(2, (-1, patch)).unflatten(1, (-1, patch)).sum((2, 4)) > 0
    hidden = vision(pixel_values=pixels_NCHW, patch_attention_mask=real).last_hidden_state
    return connector(hidden)


def _image_tokens(config: PreTrainedConfig, image_size: int) -> int:
    return (image_size // config.vision_config.patch_size // config.scale_factor) ** 2


def _problem(config: PreTrainedConfig, image_size: int) -> str | None:
    unit = config.vision_config.patch_size * config.scale_factor
    return f"a multiple of {unit}: patches are joined in squares" if image_size % unit else None


def _tiles(settings: dict[str, Any]) -> tuple[int | None, int]:
    """One image of `size` is cut into tiles of `max_image_size`, and a small one of the whole comes with them."""
    tile = settings.get("max_image_size", {}).get("longest_edge")
    whole = settings.get("size", {}).get("longest_edge")
    if tile is None or whole is None or not settings.get("do_image_splitting", True):
        return tile, 1
    side = -(-whole // tile)
    return tile, side * side + 1 if side > 1 else 1


ARCHITECTURE = Architecture(
    model_types=("idefics3", "smolvlm"),
    encoder=("model.vision_model", "model.connector"),
    text="model.text_model",
    features=_features,
    image_tokens=_image_tokens,
    problem=_problem,
    tiles=_tiles,
    layout="rows",
    inputs=("pixel_attention_mask",),
)
