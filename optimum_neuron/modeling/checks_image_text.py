"""Checks of a vision-language model's inputs before anything runs: pixels, features, image tokens."""

from __future__ import annotations

import itertools
from collections.abc import Collection

import torch

from ..compiler import Program
from ..errors import ConfigError, ShapeError
from ..kinds.multimodal.image import ENCODE

_USE_PROCESSOR = "Pass the output of the model's processor with return_tensors='pt'."


def check_known(model_type: str, known: Collection[str], **inputs: torch.Tensor | None) -> None:
    """Check that the architecture takes the inputs that are not None."""
    unknown = [name for name, value in inputs.items() if value is not None and name not in known]
    if unknown:
        message = f"A {model_type} model takes no {', '.join(unknown)}."
        raise ConfigError(message, hint="Remove the argument.", arguments=unknown)


def check_types(token_type_ids: torch.Tensor, input_ids: torch.Tensor) -> None:
    """Check that each token has a type."""
    shape, expected = list(token_type_ids.shape), list(input_ids.shape)
    if shape != expected:
        message = f"token_type_ids has shape {shape}, but input_ids has {expected}."
        raise ShapeError(message, hint=_USE_PROCESSOR, input="token_type_ids", shape=shape, expected=expected)


def check_grids(
    grids: torch.Tensor | None, types: torch.Tensor | None, mask: torch.Tensor, *, merge: int, shape: torch.Size
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what positions on three axes are computed from."""
    names = {"image_grid_thw": grids, "mm_token_type_ids": types}
    if missing := [name for name, value in names.items() if value is None]:
        message = f"Images have positions in height and width, which need {' and '.join(missing)}."
        raise ConfigError(message, hint=_USE_PROCESSOR, arguments=missing)
    assert grids is not None and types is not None
    if types.shape != shape:
        message = f"mm_token_type_ids has shape {list(types.shape)}, but input_ids has {list(shape)}."
        raise ShapeError(message, hint=_USE_PROCESSOR, input="mm_token_type_ids", shape=list(types.shape))
    if int(types.max()) > 1:
        message = "mm_token_type_ids has tokens of videos, but the model was compiled for images only."
        raise ShapeError(message, hint="Pass the frames as images.", input="mm_token_type_ids")
    _check_grid_sizes(grids, merge)
    groups = (itertools.groupby(row[real].tolist()) for row, real in zip(types, mask.bool(), strict=True))
    runs = [len(list(run)) for row in groups for value, run in row if value == 1]
    expected = (grids.prod(-1) // merge**2).tolist()
    if runs != expected:
        message = f"The prompts have runs of {runs} image tokens, but the images take {expected}."
        hint = "Let the model's processor make input_ids and pixel_values together."
        raise ShapeError(message, hint=hint, runs=runs, expected=expected)
    return grids, types


def _check_grid_sizes(grids: torch.Tensor, merge: int) -> None:
    """Raise `ShapeError` if grids have no three sizes, several frames, or patches that cannot be joined in squares."""
    if grids.ndim != 2 or grids.shape[1] != 3:
        message = f"image_grid_thw has shape {list(grids.shape)}, but the model takes [images, 3]."
        raise ShapeError(message, hint=_USE_PROCESSOR, input="image_grid_thw", shape=list(grids.shape))
    wrong = [grid for grid in grids.tolist() if grid[0] != 1 or any(side % merge for side in grid[1:])]
    if wrong:
        message = f"image_grid_thw has {wrong}, but an image has 1 frame and rows and columns in multiples of {merge}."
        raise ShapeError(message, hint=_USE_PROCESSOR, input="image_grid_thw", grids=wrong)


def check_patches(
    patches: torch.Tensor, grids: torch.Tensor | None, *, num_patches: int, width: int, merge: int
) -> list[int]:
    """Return the number of patches of each image."""
    if grids is None:
        message = "pixel_values are patches, which need image_grid_thw."
        raise ConfigError(message, hint=_USE_PROCESSOR, arguments=["image_grid_thw"])
    _check_grid_sizes(grids, merge)
    shape, lengths = list(patches.shape), grids.prod(-1).tolist()
    expected = [sum(lengths), width]
    if shape != expected:
        message = f"pixel_values has shape {shape}, but image_grid_thw={grids.tolist()} needs {expected}."
        raise ShapeError(message, hint=_USE_PROCESSOR, input="pixel_values", shape=shape)
    large = {index: length for index, length in enumerate(lengths) if length > num_patches}
    if large:
        images = "; ".join(f"Image {index} has {length} patches" for index, length in large.items())
        message = f"{images}, but the vision encoder was compiled for {num_patches}."
        hint = "Let the processor resize images (a smaller size['longest_edge']), or export with a larger image_size."
        raise ShapeError(message, hint=hint, num_patches=large, limit=num_patches)
    return lengths


def split_positions(
    position_ids: torch.Tensor | None, *, has_axes: bool
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return counted positions [R, T] and those on three axes [R, T, A], from [R, T], [3, R, T], or [4, R, T]."""
    if position_ids is None or position_ids.ndim < 3:
        return position_ids, None
    shape = list(position_ids.shape)
    if not has_axes or shape[0] not in (3, 4):
        message = f"position_ids has shape {shape}, but here the model takes [batch, columns]."
        hint = "Leave position_ids out; only prompts of Qwen's vision-language models have three axes."
        raise ShapeError(message, hint=hint, input="position_ids", shape=shape)
    counted = position_ids[0] if len(position_ids) == 4 else None
    return counted, position_ids[-3:].permute(1, 2, 0)


def check_pixels(pixel_values: torch.Tensor, program: Program, *, is_nested: bool) -> None:
    """Check that the vision encoder was compiled for these images."""
    channels, height, width = program.graphs[ENCODE].inputs["pixel_values"].shape[1:]
    axes = [*(["batch"] if is_nested else []), "images", "channels", "height", "width"]
    shape = list(pixel_values.shape)
    if len(shape) != len(axes) or 0 in shape:
        message = f"pixel_values has shape {shape}, but the model takes [{', '.join(axes)}], at least one of each."
        raise ShapeError(message, hint=_USE_PROCESSOR, input="pixel_values", shape=shape)
    if not pixel_values.is_floating_point():
        message = f"pixel_values has dtype {pixel_values.dtype}, but the model takes scaled and normalized pixels."
        raise ShapeError(message, hint=_USE_PROCESSOR, input="pixel_values", dtype=str(pixel_values.dtype))
    expected = [channels, height, width]
    if shape[-3:] != expected:
        message = f"The images have [channels, height, width] {shape[-3:]}, but the model was compiled for {expected}."
        hint = "Let the processor resize them, or export with another image_size."
        raise ShapeError(message, hint=hint, input="pixel_values", shape=shape, expected=expected)


def listed_images(pixel_values: torch.Tensor | None) -> torch.Tensor | None:
    """Return the images of rows one after the other, without those of zeros only, which fill up rows.

    Args:
        pixel_values: [rows, images, channels, height, width], or anything else, which is returned as it is.

    Returns:
        [images, channels, height, width]; None: there are no images.
    """
    if not isinstance(pixel_values, torch.Tensor) or pixel_values.ndim != 5:
        return pixel_values
    is_real_RN = (pixel_values != 0).flatten(2).any(-1)
    return pixel_values[is_real_RN] if is_real_RN.any() else None


def check_pixel_mask(
    mask: torch.Tensor | None, pixel_values: torch.Tensor, model_type: str, *, is_nested: bool
) -> None:
    """Check that a mask belongs to the pixels."""
    if mask is None:
        return
    if not is_nested:
        message = f"A {model_type} model takes no pixel_attention_mask."
        raise ShapeError(message, hint="Remove the argument.", input="pixel_attention_mask")
    shape, expected = list(mask.shape), [*pixel_values.shape[:2], *pixel_values.shape[3:]]
    if shape != expected:
        message = f"pixel_attention_mask has shape {shape}, but pixel_values has {list(pixel_values.shape)}."
        hint = f"Pass a mask of shape {expected}."
        raise ShapeError(message, hint=hint, input="pixel_attention_mask", shape=shape, expected=expected)
