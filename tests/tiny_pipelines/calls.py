"""Inputs of tiny pipelines: a prompt, an image, a mask, images of a ControlNet, and generators from a seed.

>>> arguments("sd")["prompt"]
'a red fish'
"""

from __future__ import annotations

from typing import Any

from tests.tiny_pipelines.components import SIDE
from tests.tiny_pipelines.table import PIPELINES

PROMPT = "a red fish"


def drawing(*, side: int = SIDE, seed: int = 0) -> Any:
    """A smooth random RGB image."""
    import numpy
    from PIL import Image

    pixels = numpy.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=numpy.uint8)
    return Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC)


def mask(*, side: int = SIDE) -> Any:
    """A mask whose right half is white."""
    from PIL import Image

    image = Image.new("L", (side, side), 0)
    image.paste(255, (side // 2, 0, side, side))
    return image


def arguments(name: str, *, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """Keywords for a call that takes two steps, with a seeded generator and an array as output.

    Args:
        name: A key of `PIPELINES`.
        seed: The seed of the generator.
        changes: Other keywords, which win.
    """
    import torch

    row = PIPELINES[name]
    inputs = {
        "prompt": {"prompt": PROMPT},
        "image": {"image": drawing()},
        "mask_image": {"mask_image": mask()},
        "control_image": {"control_image": drawing(seed=1)},
        "control_as_image": {"image": drawing(seed=1)},
        "controls_as_image": {"image": [drawing(seed=1), drawing(seed=2)]},
    }
    keywords: dict[str, Any] = {"num_inference_steps": 2, "output_type": "np"}
    keywords["generator"] = torch.Generator().manual_seed(seed)
    for one in row.inputs:
        keywords |= inputs[one]
    if "strength" in call_parameters(name):
        keywords |= {"strength": 0.6, "num_inference_steps": 4}
    if {"height", "width"} <= call_parameters(name):
        keywords |= {"height": SIDE, "width": SIDE}
    return keywords | row.call | changes


def call_parameters(name: str) -> set[str]:
    """Names of the parameters of the stock pipeline's call."""
    import inspect

    import diffusers

    return set(inspect.signature(getattr(diffusers, PIPELINES[name].class_name).__call__).parameters)


def pictures(output: Any) -> Any:
    """The array of a call's output, images or frames, in [0, 1]."""
    return output.frames if hasattr(output, "frames") else output.images


def compile_options(name: str) -> dict[str, Any]:
    """Options of an export for the sizes of `arguments(name)`, in exact arithmetic and without a C++ compiler."""
    call = arguments(name)
    options: dict[str, Any] = {"torch_dtype": "float32", "auto_cast": "none", "optlevel": "1"}
    options |= {key: call[key] for key in ("height", "width", "num_frames", "guidance_scale") if key in call}
    if "max_sequence_length" in call:
        options["sequence_length"] = call["max_sequence_length"]
    return options
