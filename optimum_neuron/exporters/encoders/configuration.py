"""`NeuronEncoderConfig`: shapes of a model of one forward, each axis with one size or several buckets.

It knows nothing of architectures: `shapes.py` says which axes one has and what their defaults are.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from ...configuration import CompileConfig, count_refusal, is_count, is_rising
from ...errors import ConfigError, refusal

Sizes = dict[str, int]
"""One size for each axis: what one graph is compiled for."""

AXES = (
    "batch_size",
    "text_batch_size",
    "image_batch_size",
    "num_choices",
    "sequence_length",
    "num_channels",
    "height",
    "width",
    "audio_sequence_length",
    "nb_max_frames",
    "feature_size",
)
"""Every axis, in the order in which graphs are named; the fields of `NeuronEncoderConfig` that are sizes."""

BATCH_AXES = ("batch_size", "text_batch_size", "image_batch_size")
"""Axes of independent rows: more are split."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeuronEncoderConfig(CompileConfig):
    """Static shapes, arithmetic and target of one compiled model of one forward.

    A size is a number, or a rising list of numbers: one graph is compiled for each combination.

    Example:
        ```python
        from optimum_neuron import NeuronEncoderConfig

        config = NeuronEncoderConfig(task="fill-mask", batch_size=2, sequence_length=[64, 128])
        assert config.buckets("sequence_length") == (64, 128)
        ```
    """

    batch_size: int | tuple[int, ...] | None = None
    """Rows of a graph; fewer are padded, more are split. None: 1."""
    text_batch_size: int | tuple[int, ...] | None = None
    """Rows of text where texts are compared with images. None: 1."""
    image_batch_size: int | tuple[int, ...] | None = None
    """Rows of images where texts are compared with images. None: 1."""
    num_choices: int | tuple[int, ...] | None = None
    """Answers to choose from (multiple choice). None: 4."""
    sequence_length: int | tuple[int, ...] | None = None
    """Tokens of a row; shorter rows are padded. None: 128, or what the model allows."""
    num_channels: int | tuple[int, ...] | None = None
    """Channels of an image. None: the model's."""
    height: int | tuple[int, ...] | None = None
    """Pixels of an image. None: the model's, or its image processor's."""
    width: int | tuple[int, ...] | None = None
    """Pixels of an image. None: the model's, or its image processor's."""
    audio_sequence_length: int | tuple[int, ...] | None = None
    """Samples of a recording; shorter ones are padded. None: 160,000, which is 10 seconds at 16 kHz."""
    nb_max_frames: int | tuple[int, ...] | None = None
    """Frames of a spectrogram. None: the model's, or 1,000."""
    feature_size: int | tuple[int, ...] | None = None
    """Values of a frame of a spectrogram. None: the model's."""
    dynamic_batch_size: bool = False
    """Compile for one row too, so that a remainder of one row is not padded to a whole batch."""
    output_attentions: bool = False
    """Return attention weights too."""
    output_hidden_states: bool = False
    """Return the hidden states of every layer too."""

    def _problems(self) -> Iterator[str]:
        for axis in AXES:
            value = getattr(self, axis)
            if isinstance(value, (list, tuple)) and not is_rising(value):
                yield refusal(
                    asked=f"{axis}={value}",
                    found="not a rising list of sizes",
                    why="an input goes to the smallest bucket that holds it",
                    do=f"pass for example {axis}=[64, 128]",
                )
            elif not isinstance(value, (list, tuple)) and value is not None and not is_count(value):
                yield count_refusal(axis, value)
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

    def resolve(self, defaults: Mapping[str, int], limits: Mapping[str, int], *, model: str) -> NeuronEncoderConfig:
        """Return a copy with every axis of a model filled in.

        Args:
            defaults: axes that the model has, and their sizes where none is given.
            limits: largest sizes that the model allows.
            model: what to call it in messages.

        Raises:
            ConfigError: an axis was given that the model has not, or a size beyond its limit; all are named.
        """
        problems = [
            refusal(
                asked=f"{axis}={getattr(self, axis)}",
                found=f"{model} has no such axis",
                why=f"its inputs have {', '.join(defaults)}",
                do=f"leave {axis} out",
            )
            for axis in self.axes
            if axis not in defaults
        ]
        for axis, limit in limits.items():
            if getattr(self, axis) is not None and (largest := self.buckets(axis)[-1]) > limit:
                problems.append(
                    refusal(
                        asked=f"{axis}={largest}",
                        found=f"{model} has {limit} of them",
                        why="positions beyond that were never trained",
                        do=f"pass {axis}={limit} or less",
                    )
                )
        if problems:
            raise ConfigError("\n".join(problems))
        filled: dict[str, Any] = {
            axis: min(size, limits.get(axis, size)) for axis, size in defaults.items() if getattr(self, axis) is None
        }
        return dataclasses.replace(self, **filled)
