"""Find the architecture of a model by the files of this package, and the sizes of its images."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....errors import ConfigError, ModelError
from ....plain_json import read_object
from .architecture import Architecture


@functools.cache
def implemented() -> Mapping[str, Architecture]:
    """Return the architectures by model type."""
    names = [found.name for found in pkgutil.iter_modules([str(Path(__file__).parent)])]
    modules = [importlib.import_module(f"{__package__}.{name}") for name in names]
    rows: list[Architecture] = [module.ARCHITECTURE for module in modules if hasattr(module, "ARCHITECTURE")]
    return {model_type: row for row in rows for model_type in row.model_types}


def find_architecture(config: Any) -> Architecture:
    """Return the architecture of a configuration.

    Raises:
        ModelError: the architecture or its vision tower is not implemented; the details list the choices.
    """
    choices = implemented()
    row = choices.get(config.model_type)
    if row is None:
        message = f"The vision-language architecture {config.model_type} is not implemented."
        hint = f"Pass a checkpoint of {', '.join(choices)}."
        raise ModelError(message, hint=hint, model_type=config.model_type, choices=list(choices))
    tower = config.vision_config.model_type
    if row.towers and tower not in row.towers:
        message = f"The vision tower {tower!r} of this {config.model_type} model is not implemented."
        hint = f"Pass a checkpoint with one of {', '.join(row.towers)}."
        raise ModelError(message, hint=hint, tower=tower, choices=list(row.towers))
    return row


def default_images(row: Architecture, config: Any, folder: Path) -> tuple[int, int]:
    """Pixels of an image, and images of a prompt, as the checkpoint's processor makes them."""
    image_size, num_tiles = row.tiles(_processor_settings(folder))
    return image_size or row.trained_size(config), num_tiles


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
