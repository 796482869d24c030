"""`NeuronEncoderConfig`: shapes of an encoder-style model, each axis with one size or several buckets.

It knows nothing of architectures: `inputs.py` says which axes one has and what their defaults are.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from ...errors import ConfigError, raise_together
from ...options.configuration import CompileConfig
from ...options.option import option
from ...options.peer_attributes import without_foreign
from ...options.sizes import count_errors, limit_error, missing_axes, size_errors

Sizes = dict[str, int]
"""One size for each axis: what one graph is compiled for."""

BATCH_AXES = ("batch_size", "text_batch_size", "image_batch_size")
"""Axes of independent sequences or images: larger batches are split."""


def _size(help: str = "") -> Any:
    return option(None, help=help, is_input_size=True)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NeuronEncoderConfig(CompileConfig):
    """Static shapes, arithmetic and target of one compiled encoder-style model.

    A size is a number, or a rising list of numbers: one graph is compiled for each combination.

    Example:
        ```python
        from optimum_neuron import NeuronEncoderConfig

        config = NeuronEncoderConfig(task="fill-mask", batch_size=2, sequence_length=[64, 128])
        assert config.buckets("sequence_length") == (64, 128)
        ```
    """

    group: ClassVar[str] = "encoder-style models (sizes may be several, for example 224,384)"

    batch_size: int | tuple[int, ...] | None = None
    """Batch size of a graph; smaller batches are padded, larger ones are split. None: 1."""
    text_batch_size: int | tuple[int, ...] | None = _size("texts per call, where texts are compared with images")
    """Texts per call where texts are compared with images. None: 1."""
    image_batch_size: int | tuple[int, ...] | None = _size(
        "images per call, where texts are compared with images or have images in them"
    )
    """Images per call where texts are compared with images. None: 1."""
    num_choices: int | tuple[int, ...] | None = _size("answers to choose from (multiple-choice)")
    """Answers to choose from (multiple choice). None: 4."""
    sequence_length: int | tuple[int, ...] | None = None
    """Tokens of a sequence; shorter ones are padded. None: 128, or what the model allows."""
    num_channels: int | tuple[int, ...] | None = _size("channels of an image")
    """Channels of an image. None: the model's."""
    height: int | tuple[int, ...] | None = _size("pixels of an image")
    """Pixels of an image. None: the model's, or its image processor's."""
    width: int | tuple[int, ...] | None = _size("pixels of an image")
    """Pixels of an image. None: the model's, or its image processor's."""
    audio_sequence_length: int | tuple[int, ...] | None = _size("samples of a recording")
    """Samples of a recording; shorter ones are padded. None: 160,000, which is 10 seconds at 16 kHz."""
    nb_max_frames: int | tuple[int, ...] | None = _size("frames of a spectrogram")
    """Frames of a spectrogram. None: the model's, or 1,000."""
    feature_size: int | tuple[int, ...] | None = _size("values of a frame of a spectrogram")
    """Values of a frame of a spectrogram. None: the model's."""
    dynamic_batch_size: bool = option(False, help="compile for a batch size of 1 too", flags=("--dynamic-batch-size",))
    """Compile for a batch size of 1 too, so that a single remaining sequence is not padded to a whole batch."""
    output_attentions: bool = option(False, help="return attention weights too; with Whisper, for word timestamps")
    """Return attention weights too."""
    output_hidden_states: bool = option(False, help="return every layer's hidden states too")
    """Return the hidden states of every layer too."""
    tensor_parallel_size: int = 1
    """Cores that share every layer: each has a part of the weights and of the work."""

    def _problems(self) -> Iterator[ConfigError]:
        yield from size_errors(self, AXES)
        yield from count_errors(self, ("tensor_parallel_size",))
        yield from super()._problems()

    def __post_init__(self) -> None:
        super().__post_init__()
        for axis in AXES:
            value = getattr(self, axis)
            if isinstance(value, tuple) and len(value) == 1:
                object.__setattr__(self, axis, value[0])

    @property
    def axes(self) -> tuple[str, ...]:
        """Axes that the model has."""
        return tuple(axis for axis in AXES if getattr(self, axis) is not None)

    def buckets(self, axis: str) -> tuple[int, ...]:
        """Sizes that an axis was compiled for, rising."""
        value = getattr(self, axis)
        sizes = value if isinstance(value, tuple) else (value,)
        return tuple(sorted({1, *sizes})) if self.dynamic_batch_size and axis in BATCH_AXES else sizes

    def graphs(self) -> dict[str, Sizes]:
        """Every graph by name, with its sizes; the name has the sizes of the axes with several buckets."""
        combined = itertools.product(*(self.buckets(axis) for axis in self.axes))
        return {self.graph_name(sizes): sizes for sizes in (dict(zip(self.axes, row, strict=True)) for row in combined)}

    def graph_name(self, sizes: Mapping[str, int]) -> str:
        """Name of the graph for one combination of sizes."""
        several = [axis for axis in self.axes if len(self.buckets(axis)) > 1]
        return "_".join(["forward", *(str(sizes[axis]) for axis in several)])

    def resolve(self, defaults: Mapping[str, int], limits: Mapping[str, int], *, model: str) -> Self:
        """Return the complete configuration, with a size for every axis of a model.

        Args:
            defaults: axes of the model with their default sizes.
            limits: largest sizes that the model allows.
            model: its name in messages.

        Raises:
            ConfigError: a size is of an axis that the model lacks, or beyond its limit; all are named.
        """
        given = {axis: getattr(self, axis) for axis in self.axes}
        if given.keys() - (known := without_foreign(given, defaults, model)).keys():
            dropped: dict[str, Any] = {axis: None for axis in given if axis not in known}
            return dataclasses.replace(self, **dropped).resolve(defaults, limits, model=model)
        problems = missing_axes(given, defaults, f"the inputs of {model} have")
        for axis, limit in limits.items():
            if getattr(self, axis) is not None and (largest := self.buckets(axis)[-1]) > limit:
                problems.append(limit_error(axis, largest, limit))
        raise_together(problems)
        sizes = {axis: min(size, limits.get(axis, size)) for axis, size in defaults.items()}
        sizes = {axis: size for axis, size in sizes.items() if getattr(self, axis) is None}
        return self.completed(**sizes)


AXES = tuple(
    field.name
    for field in dataclasses.fields(NeuronEncoderConfig)
    if field.name not in CompileConfig.field_names() and field.default is None
)
"""Every axis, in the order in which graphs are named; the fields of `NeuronEncoderConfig` that are sizes."""
