"""What a compiled model of images and text cannot take, said before anything runs: pixels, features, their tokens."""

from __future__ import annotations

from typing import Any

import torch

from ..compiler.ir import Program
from ..errors import ConfigError, ShapeError, refusal
from ..exporters.image_text.entry import ENCODE


def check_pixels(pixel_values: torch.Tensor, program: Program, *, is_nested: bool) -> None:
    """Refuse images that the vision encoder was not compiled for.

    Raises:
        ShapeError: they are of another rank, kind or size; what is compiled is in the message.
    """
    channels, height, width = program.graphs[ENCODE].inputs["pixel_values"].shape[1:]
    axes = ["rows", "images", "channels", "height", "width"] if is_nested else ["images", "channels", "height", "width"]
    if pixel_values.ndim != len(axes) or 0 in pixel_values.shape:
        raise ShapeError(
            refusal(
                asked=f"pixel_values of shape {list(pixel_values.shape)}",
                found=f"the model takes [{', '.join(axes)}], at least one of each",
                why="the axes of images are fixed at export",
                do="pass what the model's processor makes, with return_tensors='pt'",
            )
        )
    if not pixel_values.is_floating_point():
        raise ShapeError(
            refusal(
                asked=f"pixel_values of {pixel_values.dtype}",
                found="whole numbers",
                why="the model was trained on pixels that the processor scales and normalizes",
                do="pass what the model's processor makes",
            )
        )
    if tuple(pixel_values.shape[-3:]) != (channels, height, width):
        found = " x ".join(map(str, pixel_values.shape[-2:]))
        raise ShapeError(
            refusal(
                asked=f"images of {found} pixels with {pixel_values.shape[-3]} channels",
                found=f"compiled for {height} x {width} with {channels} channels",
                why="the vision encoder has static shapes",
                do=f"let the processor make images of {height} x {width}, or export with another image_size",
            )
        )


def check_pixel_mask(
    mask: torch.Tensor | None, pixel_values: torch.Tensor, model_type: str, *, is_nested: bool
) -> None:
    """Refuse a mask that the architecture has not, or that is of other pixels.

    Raises:
        ShapeError: it is one of these.
    """
    if mask is None:
        return
    if not is_nested:
        raise ShapeError(
            refusal(
                asked="pixel_attention_mask",
                found=f"a {model_type} model",
                why="its images are whole",
                do="leave it out",
            )
        )
    wanted = [*pixel_values.shape[:2], *pixel_values.shape[3:]]
    if list(mask.shape) != wanted:
        raise ShapeError(
            refusal(
                asked=f"pixel_attention_mask of shape {list(mask.shape)}",
                found=f"pixel_values of shape {list(pixel_values.shape)}",
                why="the mask has each pixel once",
                do=f"pass a mask of shape {wanted}",
            )
        )


def given_features(
    outputs: dict[str, Any] | None, pixel_values: Any, pixel_attention_mask: Any, *, num_past: int
) -> list[torch.Tensor]:
    """Features that were computed before; none where there are none.

    Raises:
        ConfigError: of something else than images, or images are given twice, too late, or as a mask only.
    """
    outputs = outputs or {}
    if pixel_attention_mask is not None and pixel_values is None:
        raise ConfigError(
            refusal(
                asked="pixel_attention_mask without pixel_values",
                found="no pixels",
                why="it says which of them are real",
                do="pass both, as the processor makes them",
            )
        )
    if other := sorted(outputs.keys() - {"image"}):
        raise ConfigError(
            refusal(
                asked=f"mm_encoder_outputs with {', '.join(other)}",
                found="a model of images and text",
                why="prompts were compiled for features of images",
                do="pass what get_image_features() returned, under 'image'",
            )
        )
    found = outputs.get("image")
    if found is not None and pixel_values is not None:
        raise ConfigError(
            refusal(
                asked="pixel_values and mm_encoder_outputs",
                found="both",
                why="the features of a prompt's images come from one of them",
                do="pass one",
            )
        )
    if num_past and (found is not None or pixel_values is not None):
        raise ConfigError(
            refusal(
                asked="images with past_key_values",
                found=f"{num_past} columns are cached",
                why="graphs of later tokens take token ids only",
                do="pass the whole prompt with all its images, without past_key_values",
            )
        )
    return [] if found is None else list(found.pooler_output)


def check_features(
    counts: list[int], lengths: list[int], *, image_tokens: int, max_num_images: int, by_row: bool
) -> None:
    """Refuse a prompt whose tokens of images are not those of its images.

    Args:
        counts: tokens of images in each row.
        lengths: features of each row, or of each image.
        image_tokens: tokens that stand for an image.
        max_num_images: images that a prompt was compiled for.
        by_row: whether `lengths` are of rows.

    Raises:
        ShapeError: a row has more or fewer tokens than features, or more images than compiled.
    """
    many = [
        f"row {row} has {count // image_tokens}"
        for row, count in enumerate(counts)
        if count > max_num_images * image_tokens
    ]
    if many:
        raise ShapeError(
            refusal(
                asked=f"prompts of more than {max_num_images} image{'s' * (max_num_images > 1)}",
                found=", ".join(many),
                why=f"prompts were compiled for max_num_images={max_num_images}; one that is split counts as its tiles",
                do="pass fewer images, tell the processor do_image_splitting=False, or export with a larger "
                "max_num_images",
            )
        )
    if by_row and len(lengths) == len(counts):
        wrong = [
            f"row {row} has {count} tokens and {length} features"
            for row, (count, length) in enumerate(zip(counts, lengths, strict=True))
            if count != length
        ]
    else:
        torn = [f"row {row} has {count} tokens" for row, count in enumerate(counts) if count % image_tokens]
        total = [f"{sum(counts)} tokens and {sum(lengths)} features"] if sum(counts) != sum(lengths) else []
        wrong = total or torn
    if wrong:
        raise ShapeError(
            refusal(
                asked="prompts with images",
                found="; ".join(wrong),
                why=f"each image takes {image_tokens} image tokens of its row",
                do="let the model's processor make input_ids and pixel_values together",
            )
        )
