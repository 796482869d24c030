"""Llama 4: a vision transformer with rotary positions whose patches are joined in squares; an image is cut into tiles."""

from __future__ import annotations

from typing import Any

from .architecture import Architecture, trained_size_only


def _features(model: Any, pixels_NCHW: Any) -> Any:
    hidden = model.vision_model(pixels_NCHW, return_dict=True).last_hidden_state
    return model.multi_modal_projector(hidden)


def _expected(model: Any, outputs: Any) -> Any:
    """transformers projects features where it inserts them."""
    return model.multi_modal_projector(outputs.last_hidden_state)


def _image_tokens(config: Any, image_size: int) -> int:
    vision = config.vision_config
    return round((image_size // vision.patch_size) ** 2 * vision.pixel_shuffle_ratio**2)


def _tiles(settings: dict[str, Any]) -> tuple[int | None, int]:
    """One image is cut into `max_patches` tiles at most, and a small one of the whole comes with them."""
    most = settings.get("max_patches", 16)
    return settings.get("size", {}).get("height"), most + 1 if most > 1 else 1


ARCHITECTURE = Architecture(
    model_types=("llama4",),
    vision=("vision_model", "multi_modal_projector"),
    text="language_model.model",
    head="language_model.lm_head",
    features=_features,
    expected=_expected,
    image_tokens=_image_tokens,
    problem=trained_size_only,
    tiles=_tiles,
)
