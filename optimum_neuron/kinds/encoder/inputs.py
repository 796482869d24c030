"""Input tensors of encoder-style models, their axes, and the default sizes.

It reads the arguments of `forward`, the configuration and, for images, the image processor's file. It knows nothing of
graphs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...base.model_facts import facts_of
from ...base.transformers_types import PreTrainedConfig, PreTrainedModel
from ...engine import Input
from ...errors import ModelError
from ...files.plain_json import read_object
from .architectures import Architecture
from .entry import forward_arguments

DEFAULT_SIZES = {"batch_size": 1, "text_batch_size": 1, "image_batch_size": 1, "num_choices": 4}
DEFAULT_LENGTH, DEFAULT_SAMPLES, DEFAULT_FRAMES, DEFAULT_PIXELS, DEFAULT_CHANNELS = 128, 160_000, 1_000, 224, 3
_KNOWN = ("input_ids", "pixel_values", "input_values", "input_features")


def model_inputs(model: PreTrainedModel, task: str, row: Architecture, dtype: str) -> tuple[Input, ...]:
    """Return the inputs of a model, in the order in which its graphs take them."""
    config = model.config
    taken = [name for name in forward_arguments(model) if name not in row.without]
    contrastive = row.contrastive or task == "zero-shot-image-classification"
    texts, images = ("text_batch_size", "image_batch_size") if contrastive else ("batch_size", "batch_size")
    both = "input_ids" in taken and "pixel_values" in taken
    inputs: list[Input] = []
    if "input_ids" in taken:
        text = config.get_text_config()
        axes = (texts if both else "batch_size", *(("num_choices",) if task == "multiple-choice" else ()))
        inputs += _text(taken, text, (*axes, "sequence_length"))
    if "pixel_values" in taken:
        batch = images if both else "batch_size"
        pixels = (batch, "num_channels", "height", "width")
        inputs.append(Input(name="pixel_values", dtype=dtype, axes=pixels))
        if "pixel_mask" in taken:
            inputs.append(Input(name="pixel_mask", dtype="int64", axes=(batch, "height", "width"), default=1))
    inputs += _audio(taken, config, dtype)
    if not inputs:
        message = f"The forward of {type(model).__name__} takes {', '.join(taken)}, but none of {', '.join(_KNOWN)}."
        hint = "Trace the model with torch_neuronx.trace, which takes any example inputs."
        raise ModelError(message, hint=hint, model_type=config.model_type, inputs=taken, choices=list(_KNOWN))
    return tuple(inputs)


def _text(taken: list[str], config: PreTrainedConfig, axes: tuple[str, ...]) -> list[Input]:
    padding = facts_of(config).pad_token_id
    padding = facts_of(config).pad_index if padding is None else padding
    vocabulary = facts_of(config).vocab_size or facts_of(config).n_words
    inputs = [Input(name="input_ids", dtype="int64", axes=axes, padding=padding or 0, limit=vocabulary)]
    if "attention_mask" in taken:
        inputs.append(Input(name="attention_mask", dtype="int64", axes=axes, default=1, limit=2))
    kinds = facts_of(config).type_vocab_size or 0
    if "token_type_ids" in taken and kinds > 0:
        inputs.append(Input(name="token_type_ids", dtype="int64", axes=axes, default=0, limit=kinds))
    return inputs


def ignored_inputs(model: PreTrainedModel, row: Architecture) -> tuple[str, ...]:
    """Inputs that the processor makes and the forward drops, as DeBERTa does token types of which it has none."""
    takes_kinds = "token_type_ids" in forward_arguments(model) and "token_type_ids" not in row.without
    has_kinds = facts_of(model.config.get_text_config()).type_vocab_size != 0
    return row.ignored if has_kinds or not takes_kinds else (*row.ignored, "token_type_ids")


def _audio(taken: list[str], config: PreTrainedConfig, dtype: str) -> list[Input]:
    name = next((name for name in ("input_values", "input_features") if name in taken), None)
    if name is None:
        return []
    # Raw samples go through convolutions; what has mel bins takes a spectrogram under the same name.
    is_raw = name == "input_values" and _audio_field(config, "num_mel_bins") is None
    axes = ("batch_size", "audio_sequence_length") if is_raw else ("batch_size", "nb_max_frames", "feature_size")
    inputs = [Input(name=name, dtype=dtype, axes=axes)]
    if "attention_mask" in taken:
        inputs.append(Input(name="attention_mask", dtype="int64", axes=axes[:2], default=1, limit=2))
    return inputs


def default_sizes(inputs: tuple[Input, ...], config: PreTrainedConfig, folder: Path) -> dict[str, int]:
    """Return the axes of the inputs with their default sizes."""
    axes = dict.fromkeys(axis for tensor in inputs for axis in tensor.axes)
    height, width = _image_size(config, folder) if "height" in axes else (0, 0)
    mel_bins = _audio_field(config, "num_mel_bins") or _audio_field(config, "feature_projection_input_dim")
    vision = facts_of(config).vision_config or config
    sizes = DEFAULT_SIZES | {
        "sequence_length": DEFAULT_LENGTH,
        "num_channels": facts_of(vision).num_channels or DEFAULT_CHANNELS,
        "height": height,
        "width": width,
        "audio_sequence_length": DEFAULT_SAMPLES,
        "nb_max_frames": facts_of(config).max_length or DEFAULT_FRAMES,
        "feature_size": mel_bins or 80,
    }
    return {axis: sizes[axis] for axis in axes}


def _audio_field(config: PreTrainedConfig, name: str, default: object = None) -> Any:
    """A field of a model, or of its encoder where that has a configuration of its own."""
    parts = (getattr(config, part, None) for part in ("encoder_config", "audio_config"))
    return next((getattr(part, name) for part in (config, *parts) if hasattr(part, name)), default)


def largest_sizes(inputs: tuple[Input, ...], config: PreTrainedConfig, row: Architecture) -> dict[str, int]:
    """Return the limits of the model's position tables."""
    text = config.get_text_config() if any(tensor.name == "input_ids" for tensor in inputs) else config
    limits = {}
    positions = facts_of(text).max_position_embeddings
    if positions and positions > 0 and any("sequence_length" in tensor.axes for tensor in inputs):
        limits["sequence_length"] = positions
        if row.positions_after_padding and facts_of(text).position_embedding_type in (None, "absolute"):
            limits["sequence_length"] -= (text.pad_token_id if text.pad_token_id is not None else 1) + 1
    return limits


def _image_size(config: PreTrainedConfig, folder: Path) -> tuple[int, int]:
    size = facts_of(facts_of(config).vision_config or config).image_size
    if size is None and (folder / "preprocessor_config.json").is_file():
        processor = read_object(folder / "preprocessor_config.json")
        size = processor.get("crop_size" if processor.get("do_center_crop") else "size")
    if isinstance(size, dict):
        edge = int(size.get("shortest_edge") or DEFAULT_PIXELS)
        return int(size.get("height") or edge), int(size.get("width") or edge)
    if isinstance(size, (list, tuple)):
        return int(size[0]), int(size[1])
    return (int(size), int(size)) if size else (DEFAULT_PIXELS, DEFAULT_PIXELS)


def frame_rule(config: PreTrainedConfig) -> tuple[int, int]:
    """Samples that a frame of a speech model sees, and samples from one to the next.

    Valid convolutions without padding, one after the other, are one with this window and stride: see "A guide to
    convolution arithmetic for deep learning" (Dumoulin and Visin, 2016), relationships 5 and 6.
    """
    window, stride = 1, 1
    for kernel, step in zip(
        _audio_field(config, "conv_kernel", ()), _audio_field(config, "conv_stride", ()), strict=True
    ):
        window += (kernel - 1) * stride
        stride *= step
    return window, stride


def step_rules(lengths: Callable[[int], tuple[int, ...]], size: int, other: int) -> list[tuple[int, int]]:
    """Windows and strides of dimensions that follow the size of an input in steps, as behind convolutions.

    A dimension has `(size - window) // stride + 1` elements; convolutions that pad have a window that is shorter, and
    may be negative. The two sizes at which the dimension grows last tell both.

    Args:
        other: a smaller one; dimensions that are the same for both are left out.
    """
    measured = functools.cache(lengths)

    def grows_at(dim: int, length: int, below: int, size: int) -> int:
        """The smallest size for which a dimension is so long; `below` is too small, and `size` is not."""
        while size - below > 1:
            middle = (below + size) // 2
            below, size = (below, middle) if measured(middle)[dim] >= length else (middle, size)
        return size

    rules: dict[tuple[int, int], None] = {}
    for dim, (length, least) in enumerate(zip(measured(size), measured(other), strict=True)):
        if length - least < 2 or any((size - w) // s + 1 == length and (other - w) // s + 1 == least for w, s in rules):
            continue
        last = grows_at(dim, length, other, size)
        stride = last - grows_at(dim, length - 1, other, last)
        rules[last - (length - 1) * stride, stride] = None
    return [*rules]
