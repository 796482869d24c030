"""What differs between architectures of images and text, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

Layout = Literal["rows", "images", "patches"]
"""Axes of `pixel_values`: rows [batch, images, channels, height, width] with a mask of pixels, where images of zeros
fill up rows; images [images, channels, height, width] of all rows, one after the other; or their patches [patches,
width], with the grid of each image in `image_grid_thw`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture:
    """What is known of one or several model types."""

    model_types: tuple[str, ...]
    """Architectures that behave alike."""
    vision: tuple[str, ...]
    """Modules that turn pixels into features."""
    text: str = "model.language_model"
    """Module of the decoder, without its head."""
    head: str = "lm_head"
    """Module of the decoder's head."""
    features: Callable[..., Any]
    """Features [N, L, D] from a model and pixels: calls the vision modules without what depends on the pixels' values.

    transformers drops padding images and splits results by row while it runs; here a graph takes a fixed number of
    images, and who calls it drops and splits.
    """
    expected: Callable[[Any, Any], Any] = lambda model, outputs: outputs.pooler_output
    """The same features from a transformers model and the result of its `get_image_features`."""
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
    inputs: tuple[str, ...] = ()
    """What else the model's processor makes, beside token ids, their mask, and pixels."""
    blocks: Callable[[Any], Any] | None = None
    """Numbers of the blocks of tokens that see each other in both directions, from `token_type_ids`; 0 for no block."""
    blocks_pass_windows: bool = False
    """Whether tokens of a block see each other beyond the window of a layer too."""
    positions: Callable[..., Any] | None = None
    """Positions [R, T, A] in time, height, and width from token types, a mask of real tokens, grids of the images in
    their order, and a configuration; None where a token's position is its index."""
    axes: Callable[[Any], tuple[int, ...]] | None = None
    """Axis of these positions for each rotary frequency, from the configuration of the text model."""
    text_type: str | None = None
    """Model type whose decoder the text model is, but for its positions; None for its own."""
    num_added: Callable[[Any], int] = lambda config: 0
    """Features of the same width behind those of an image, which are added to the results of the first layers."""
    answer_type: int | None = None
    """`token_type_ids` of generated tokens; None for that of the last token of the prompt."""
    towers: tuple[str, ...] = ()
    """Model types of the vision modules that are implemented, where there is a choice."""
    prepare: Callable[[Any], None] = lambda model: None
    """Changes the model before it is captured."""
    is_uniform: Callable[[Any], bool] = lambda config: True
    """Whether what follows the vision layers reads the last one only, so that few of them need be captured."""


def trained_size(config: Any) -> int:
    """Pixels of an image in height and in width that a model was trained on."""
    size = config.vision_config.image_size
    return size if isinstance(size, int) else size[0]


def trained_size_only(config: Any, image_size: int) -> str | None:
    """Say that a vision tower takes the images that it was trained on alone, or None."""
    trained = trained_size(config)
    return None if image_size == trained else f"{trained}: its vision tower has positions for no other size"


def with_whole(settings: dict[str, Any], most: int) -> tuple[int | None, int]:
    """Return the size of an image and its number of tiles: `most`, and a small one of the whole if it is cut."""
    return settings.get("size", {}).get("height"), most + 1 if most > 1 else 1


def pooled_features(model: Any, pixels_NCHW: Any) -> Any:
    """Features [N, L, D] as transformers' `get_image_features` computes them."""
    return model.model.get_image_features(pixels_NCHW, return_dict=True).pooler_output
