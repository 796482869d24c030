"""Sizes of a call: the compiled ones are its defaults, and others are rejected before anything runs.

It knows the arguments of stock pipelines and the configuration of the export, and no programs.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ...errors import ShapeError
from ...kinds.diffusion import NeuronDiffusionConfig, exact_sizes

_CALL_SIZES = {
    "height": "height",
    "width": "width",
    "num_frames": "num_frames",
    "max_sequence_length": "sequence_length",
    "guidance_scale": "guidance_scale",
    "num_images_per_prompt": "num_images_per_prompt",
}
"""Arguments of a call to the options that are their defaults."""


def default_sizes(
    config: NeuronDiffusionConfig, signature: inspect.Signature, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the sizes that a call leaves out.

    Args:
        config: configuration of the export.
        signature: signature of the stock pipeline's call.
        given: arguments of the call by name.
    """
    defaults: dict[str, Any] = {}
    for name, option in _CALL_SIZES.items():
        value = getattr(config, option)
        if name in signature.parameters and given.get(name) is None and value is not None:
            defaults[name] = value[0] if isinstance(value, tuple) else value
    call = {**given, **defaults}
    _require_compiled(config, signature, call)
    exact = exact_sizes(call.get("height"), call.get("width"))
    return {
        name: value for name, value in exact.items() if name in signature.parameters and name not in given
    } | defaults


def _require_compiled(config: NeuronDiffusionConfig, signature: inspect.Signature, call: Mapping[str, Any]) -> None:
    if {"height", "width"} <= signature.parameters.keys():
        resolution = call.get("height"), call.get("width")
        compiled = config.resolutions()
        if resolution not in compiled:
            shown = ", ".join(f"{height}x{width}" for height, width in compiled)
            message = f"The resolution {resolution[0]}x{resolution[1]} was not compiled (height x width: {shown})."
            hint = "Pass a compiled height and width, or export with this one too."
            raise ShapeError(message, hint=hint, resolution=resolution, compiled=compiled)
    frames = call.get("num_frames")
    if "num_frames" in signature.parameters and config.num_frames is not None and frames != config.num_frames:
        message = f"num_frames={frames} was not compiled; the pipeline makes videos of {config.num_frames} frames."
        hint = "Remove num_frames, or export with this number."
        raise ShapeError(message, hint=hint, num_frames=frames, compiled=config.num_frames)
