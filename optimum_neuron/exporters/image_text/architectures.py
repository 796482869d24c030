"""The architectures of images and text that are implemented, as data.

Add a row, a tiny configuration in `tests/image_text.py`, and run the tests. transformers' code is the same for all of
them below the modules that the row names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import ConfigError, ModelError
from ...plain_json import read_object
from .vision import drop_unused_layers, feature_layers, selected_features, shuffled_features


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture:
    """What is known of one or several model types."""

    model_types: tuple[str, ...]
    """Architectures that behave alike."""
    vision: tuple[str, ...]
    """Modules that turn pixels into features."""
    text: str
    """Module of the decoder, without its head."""
    features: Callable[..., Any]
    """Calls the vision modules; see `vision.py`."""
    image_tokens: Callable[[Any, int], int]
    """Tokens that stand for an image, from a configuration and pixels."""
    problem: Callable[[Any, int], str | None]
    """Why images of so many pixels are not possible, or None."""
    tiles: Callable[[dict[str, Any]], tuple[int | None, int]]
    """Pixels of an image, and images that one is split into, from the settings of an image processor."""
    is_nested: bool
    """`pixel_values` have an axis of rows before that of images, and a mask of pixels comes with them."""
    towers: tuple[str, ...] = ()
    """Model types of the vision modules that are implemented, where there is a choice."""
    prepare: Callable[[Any], None] = lambda model: None
    """Changes the model before it is captured."""
    is_uniform: Callable[[Any], bool] = lambda config: True
    """Whether what follows the vision layers reads the last one only, so that few of them need be captured."""


def _shuffled_tokens(config: Any, image_size: int) -> int:
    return (image_size // config.vision_config.patch_size // config.scale_factor) ** 2


def _shuffled_problem(config: Any, image_size: int) -> str | None:
    unit = config.vision_config.patch_size * config.scale_factor
    return f"a multiple of {unit}: patches are joined in squares" if image_size % unit else None


def _shuffled_tiles(settings: dict[str, Any]) -> tuple[int | None, int]:
    """One image of `size` is cut into tiles of `max_image_size`, and a small one of the whole comes with them."""
    tile = settings.get("max_image_size", {}).get("longest_edge")
    whole = settings.get("size", {}).get("longest_edge")
    if tile is None or whole is None or not settings.get("do_image_splitting", True):
        return tile, 1
    side = -(-whole // tile)
    return tile, side * side + 1 if side > 1 else 1


def _tower_tokens(config: Any, image_size: int) -> int:
    patches = (image_size // config.vision_config.patch_size) ** 2
    with_class = config.vision_config.model_type == "clip_vision_model"
    return patches + with_class - (config.vision_feature_select_strategy == "default")


def _tower_problem(config: Any, image_size: int) -> str | None:
    trained = config.vision_config.image_size
    return None if image_size == trained else f"{trained}: its vision tower has positions for no other size"


ARCHITECTURES = (
    Architecture(
        model_types=("idefics3", "smolvlm"),
        vision=("model.vision_model", "model.connector"),
        text="model.text_model",
        features=shuffled_features,
        image_tokens=_shuffled_tokens,
        problem=_shuffled_problem,
        tiles=_shuffled_tiles,
        is_nested=True,
    ),
    Architecture(
        model_types=("llava",),
        vision=("model.vision_tower", "model.multi_modal_projector"),
        text="model.language_model",
        features=selected_features,
        image_tokens=_tower_tokens,
        problem=_tower_problem,
        tiles=lambda settings: (None, 1),
        is_nested=False,
        towers=("clip_vision_model", "siglip_vision_model"),
        prepare=drop_unused_layers,
        is_uniform=lambda config: len(feature_layers(config)) == 1,
    ),
)

_BY_TYPE = {model_type: row for row in ARCHITECTURES for model_type in row.model_types}


def find_architecture(config: Any) -> Architecture:
    """Return the row of a model's architecture.

    Raises:
        ModelError: the architecture or its vision tower is not implemented; the details list the choices.
    """
    row = _BY_TYPE.get(config.model_type)
    if row is None:
        message = f"The vision-language architecture {config.model_type} is not implemented."
        hint = f"Pass a checkpoint of {', '.join(_BY_TYPE)}."
        raise ModelError(message, hint=hint, model_type=config.model_type, choices=list(_BY_TYPE))
    tower = config.vision_config.model_type
    if row.towers and tower not in row.towers:
        message = f"The vision tower {tower!r} of this {config.model_type} model is not implemented."
        hint = f"Pass a checkpoint with one of {', '.join(row.towers)}."
        raise ModelError(message, hint=hint, tower=tower, choices=list(row.towers))
    return row


def default_images(row: Architecture, config: Any, folder: Path) -> tuple[int, int]:
    """Pixels of an image, and images of a prompt, as the checkpoint's processor makes them."""
    image_size, num_tiles = row.tiles(_processor_settings(folder))
    return image_size or config.vision_config.image_size, num_tiles


def check_image_size(row: Architecture, config: Any, image_size: int) -> None:
    """Reject an image size that the architecture cannot take.

    Raises:
        ConfigError: the message has the possible sizes.
    """
    problem = row.problem(config, image_size)
    if problem is not None:
        message, hint = f"image_size is {image_size}, but must be {problem}.", "Remove image_size, or pass such a size."
        raise ConfigError(message, hint=hint, option="image_size", value=image_size)


def _processor_settings(folder: Path) -> dict[str, Any]:
    """Settings of the image processor in a folder; none where it has none."""
    whole, images = folder / "processor_config.json", folder / "preprocessor_config.json"
    if whole.is_file() and "image_processor" in (data := read_object(whole)):
        return data["image_processor"]
    return read_object(images) if images.is_file() else {}
