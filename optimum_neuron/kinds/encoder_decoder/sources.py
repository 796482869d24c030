"""What an encoder reads: tokens, a spectrogram or a recording. It is data, written into the NEFF for whoever runs it.

    source = find_source(model)
    source.inputs(rows=1, length=128)

An architecture that reads sound has a line in `SPEECH`; every other one reads tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torch import nn

from ...base.core import TensorSpec
from ...base.transformers_types import PreTrainedModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """The tensors of an encoder, and how many states come of them."""

    name: str
    """Argument of the encoder that has the content."""
    axis: str
    """Field of the configuration that has its length."""
    num_channels: int | None = None
    """Values of a frame; None: the tensor has one value at each place."""
    is_masked: bool = True
    """Whether it may be padded at its end, which `attention_mask` tells; else it has one length."""
    window: int = 1
    """Places that one state sees."""
    stride: int = 1
    """Places from one state to the next."""

    @property
    def has_row_positions(self) -> bool:
        """Whether the decoder takes a position for each row; else all rows are at the same one."""
        return self.name != "input_ids"

    @property
    def dtype(self) -> str:
        """torch's name of what the graph takes."""
        return "int64" if self.name == "input_ids" else "float32"

    def num_states(self, length: int) -> int:
        """Hidden states that come of so many places."""
        return max((length - self.window) // self.stride + 1, 0)

    def inputs(self, rows: int, length: int) -> dict[str, TensorSpec]:
        """Inputs of a graph, by name."""
        shape = (rows, length) if self.num_channels is None else (rows, self.num_channels, length)
        content = {self.name: TensorSpec(shape=shape, dtype=self.dtype)}
        mask = {"attention_mask": TensorSpec(shape=(rows, length), dtype="int64")}
        return content | mask if self.is_masked else content

    def masks(self, rows: int, length: int) -> dict[str, TensorSpec]:
        """The input that tells the decoder which states are padding, where there can be some."""
        mask = {"attention_mask": TensorSpec(shape=(rows, self.num_states(length)), dtype="int64")}
        return mask if self.is_masked else {}


TOKENS = Source(name="input_ids", axis="sequence_length")


def _spectrogram(model: PreTrainedModel) -> Source:
    """Whisper's: two convolutions, the second one halves the frames; it has no mask, silence is padding."""
    config = model.config
    name, axis = "input_features", "nb_max_frames"
    return Source(name=name, axis=axis, num_channels=config.num_mel_bins, is_masked=False, window=2, stride=2)


def _recording(model: PreTrainedModel) -> Source:
    """Moonshine's: convolutions without padding, one after the other."""
    window, stride = 1, 1
    for conv in model.get_encoder().children():
        if isinstance(conv, nn.Conv1d):
            window += (int(conv.kernel_size[0]) - 1) * stride
            stride *= int(conv.stride[0])
    return Source(name="input_values", axis="audio_sequence_length", window=window, stride=stride)


SPEECH: dict[str, Callable[[Any], Source]] = {"whisper": _spectrogram, "moonshine": _recording}
"""Model type to what its encoder reads."""


def find_source(model: PreTrainedModel) -> Source:
    """What the encoder of a model reads."""
    makes = SPEECH.get(model.config.model_type)
    return TOKENS if makes is None else makes(model)
