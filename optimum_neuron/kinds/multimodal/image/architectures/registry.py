"""Find the architecture of a model by the files of this package, and the sizes of its images."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .....base.transformers_types import PreTrainedConfig
from .....errors import ConfigError, ModelError
from .....files.plain_json import read_object
from .architecture import Architecture

REASONS = {
    "llava_next": "it joins tiles by the shape of each image, with features of newlines between their rows",
    "llava_onevision": "it joins tiles by the shape of each image, with features of newlines between their rows",
    "mllama": "layers of its decoder attend to images, and the cache has slots for tokens only",
    "gemma3n": "its decoder reads embeddings of tokens in every layer",
}
"""Model type to what the graphs of images and prompts lack for it."""


@functools.cache
def implemented() -> Mapping[str, Architecture]:
    """Return the architectures by model type."""
    names = [found.name for found in pkgutil.iter_modules([str(Path(__file__).parent)])]
    modules = [importlib.import_module(f"{__package__}.{name}") for name in names]
    rows: list[Architecture] = [module.ARCHITECTURE for module in modules if hasattr(module, "ARCHITECTURE")]
    return dict(sorted((model_type, row) for row in rows for model_type in row.model_types))


def find_architecture(config: PreTrainedConfig) -> Architecture:
    """Return the architecture of a configuration."""
    choices = implemented()
    row = choices.get(config.model_type)
    if row is None:
        reason = f": {REASONS[config.model_type]}" if config.model_type in REASONS else ""
        message = f"The vision-language architecture {config.model_type} is not implemented{reason}."
        hint = f"Pass a checkpoint of {', '.join(choices)}."
        raise ModelError(message, hint=hint, model_type=config.model_type, choices=list(choices))
    tower = config.vision_config.model_type
    if row.towers and tower not in row.towers:
        message = f"The vision tower {tower!r} of this {config.model_type} model is not implemented."
        hint = f"Pass a checkpoint with one of {', '.join(row.towers)}."
        raise ModelError(message, hint=hint, tower=tower, choices=list(row.towers))
    return row


def default_images(row: Architecture, config: PreTrainedConfig, folder: Path) -> tuple[int, int]:
    """Pixels of an image, and images of a prompt, as the checkpoint's processor makes them."""
    image_size, num_tiles = row.tiles(_processor_settings(folder))
    return image_size or row.trained_size(config), num_tiles


def check_image_size(row: Architecture, config: PreTrainedConfig, image_size: int | tuple[int, ...]) -> None:
    """Reject image sizes that the architecture cannot take."""
    sizes = all_sizes(image_size)
    problem = next((problem for size in sizes if (problem := row.problem(config, size))), None)
    if problem is None and len(sizes) > 1 and row.layout != "patches":
        problem = f"one size: a {config.model_type} model takes images of one size"
    if problem is not None:
        message, hint = f"image_size is {image_size}, but must be {problem}.", "Remove image_size, or pass such a size."
        raise ConfigError(message, hint=hint, option="image_size", value=image_size)


def all_sizes(image_size: int | Sequence[int]) -> tuple[int, ...]:
    """Return one or several image sizes, rising."""
    return (image_size,) if isinstance(image_size, int) else tuple(image_size)


def _processor_settings(folder: Path) -> dict[str, Any]:
    """Settings of the image processor in a folder; none where it has none."""
    whole, images = folder / "processor_config.json", folder / "preprocessor_config.json"
    if whole.is_file() and "image_processor" in (data := read_object(whole)):
        return data["image_processor"]
    return read_object(images) if images.is_file() else {}
