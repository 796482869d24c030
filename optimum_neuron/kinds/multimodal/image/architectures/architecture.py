"""What differs between architectures of images and text, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from .....base.transformers_types import PreTrainedConfig, PreTrainedModel
from ...architecture import FeatureArchitecture

Layout = Literal["rows", "images", "patches"]
"""Axes of `pixel_values`: rows [batch, images, channels, height, width] with a mask of pixels, where images of zeros
fill up rows; images [images, channels, height, width] of all rows, one after the other; or their patches [patches,
width], with the grid of each image in `image_grid_thw`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture(FeatureArchitecture):
    """What is known of one or several model types."""

    expected: Callable[[Any, Any], Any] = lambda model, outputs: outputs.pooler_output
    """Features from a transformers model and the result of its `get_image_features`."""
    image_tokens: Callable[[Any, int], int]
    """Tokens that stand for an image, from a configuration and pixels."""
    trained_size: Callable[[Any], int] = lambda config: config.vision_config.image_size
    """Pixels of an image in height and in width that the model was trained on."""
    problem: Callable[[Any, int], str | None]
    """Why images of so many pixels are not possible, or None."""
    tiles: Callable[[dict[str, Any]], tuple[int | None, int]] = lambda settings: (None, 1)
    """Pixels of an image, and images that one is split into, from the settings of an image processor."""
    layout: Layout = "images"
    """Axes of `pixel_values`."""
    answer_type: int | None = None
    """`token_type_ids` of generated tokens; None for that of the last token of the prompt."""
    towers: tuple[str, ...] = ()
    """Model types of the vision modules that are implemented, where there is a choice."""


def trained_size(config: PreTrainedConfig) -> int:
    """Pixels of an image in height and in width that a model was trained on."""
    size = config.vision_config.image_size
    return size if isinstance(size, int) else size[0]


def trained_size_only(config: PreTrainedConfig, image_size: int) -> str | None:
    """Say that a vision tower takes the images that it was trained on alone, or None."""
    trained = trained_size(config)
    return None if image_size == trained else f"{trained}: its vision tower has positions for no other size"


def with_whole(settings: dict[str, Any], most: int) -> tuple[int | None, int]:
    """Return the size of an image and its number of tiles: `most`, and a small one of the whole if it is cut."""
    return settings.get("size", {}).get("height"), most + 1 if most > 1 else 1


def pooled_features(model: PreTrainedModel, pixels_NCHW: object) -> Any:
    """Features [N, L, D] as transformers' `get_image_features` computes them."""
    return model.model.get_image_features(pixels_NCHW, return_dict=True).pooler_output
