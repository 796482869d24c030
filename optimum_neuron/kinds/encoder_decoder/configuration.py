"""Shapes of models that read a source and write a target: `NeuronSeq2SeqConfig` for texts and
`NeuronSpeechSeq2SeqConfig` for audio.

It knows nothing of architectures: `plan.py` and `speech.py` ask the model for its limits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from ...errors import ConfigError, raise_together
from ...options.configuration import CompileConfig, NeuronConfig
from ...options.option import OPEN, option
from ...options.sizes import count_errors, limit_error, missing_axes, size_errors

DEFAULT_LENGTH = 128
"""Default tokens of source and target."""

DEFAULT_SAMPLES = 160_000
"""Default samples of a recording: 10 seconds at 16 kHz."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EncoderDecoderConfig(CompileConfig):
    """Fields of text and audio models alike."""

    group: ClassVar[str] = NeuronConfig.group
    source_axes: ClassVar[tuple[str, ...]]
    """Fields that have the length of a source; a model has one of them."""
    sizes_of_model = ("decoder_sequence_length",)

    batch_size: int = 1
    """Batch size of every graph; smaller batches are padded, larger ones are split."""
    num_beams: int = option(
        1, help="default beams of generate() of a model such as T5; its decoder has a sequence for each"
    )
    """Beams of `generate` where it is called without `num_beams`; the decoder's graphs have a batch size of
    `batch_size * num_beams`."""
    decoder_sequence_length: int = option(
        OPEN, help="tokens that a model such as T5 writes per sequence; --sequence_length is what it reads"
    )
    """Tokens of a target, with its first one. None: the default of the task."""
    tensor_parallel_size: int = 1
    """Cores that share every layer: each has a part of the weights and of the work."""

    def _problems(self) -> Iterator[ConfigError]:
        yield from count_errors(self, ("batch_size", "num_beams", "tensor_parallel_size"))
        yield from count_errors(self, ("decoder_sequence_length",), optional=True)
        yield from size_errors(self, self.source_axes)
        yield from super()._problems()

    @property
    def axes(self) -> tuple[str, ...]:
        return ("batch_size", self._source_axis, "decoder_sequence_length")

    @property
    def open_sizes(self) -> list[str]:
        has_source = any(getattr(self, axis) is not None for axis in self.source_axes)
        return [*super().open_sizes, *([] if has_source else [" or ".join(self.source_axes)])]

    @property
    def _source_axis(self) -> str:
        return next(axis for axis in self.source_axes if getattr(self, axis) is not None)

    @property
    def source_buckets(self) -> tuple[int, ...]:
        """Source lengths that are compiled."""
        length = getattr(self, self._source_axis)
        return length if isinstance(length, tuple) else (length,)

    @property
    def num_target_slots(self) -> int:
        """Tokens of the longest target: slots of the self-attention cache."""
        return self.decoder_sequence_length

    @property
    def num_target_rows(self) -> int:
        """Batch size of the decoder's graphs: each beam is a sequence."""
        return self.batch_size * self.num_beams

    @property
    def source_results(self) -> tuple[str, ...]:
        """Results of each layer in source graphs, beside the last hidden states."""
        return ()

    @property
    def target_results(self) -> tuple[str, ...]:
        """Results of each layer in target graphs, beside logits."""
        return ()

    @property
    def returns_attentions(self) -> bool:
        """Whether target graphs return weights of cross-attention."""
        return "cross_attentions" in self.target_results

    def _lengths(self, defaults: Mapping[str, int], limits: Mapping[str, int | None]) -> dict[str, Any]:
        """Every length of a model."""
        values = {axis: getattr(self, axis) for axis in (*self.source_axes, "decoder_sequence_length")}
        lengths: dict[str, Any] = {axis: values[axis] or size for axis, size in defaults.items()}
        longest = {axis: size[-1] if isinstance(size, tuple) else size for axis, size in lengths.items()}
        problems = missing_axes(values, defaults, "the lengths of the model are")
        for axis, limit in limits.items():
            if limit is not None and longest[axis] > limit:
                problems.append(limit_error(axis, longest[axis], limit))
        raise_together(problems)
        return lengths


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NeuronSeq2SeqConfig(EncoderDecoderConfig):
    """Static shapes, arithmetic and target of one compiled encoder and decoder of texts.

    Example:
        ```python
        from optimum_neuron import NeuronSeq2SeqConfig

        config = NeuronSeq2SeqConfig(sequence_length=[64, 128]).resolve(num_positions=512)
        assert config.source_buckets == (64, 128)
        assert config.decoder_sequence_length == 128
        ```
    """

    source_axes = ("sequence_length",)

    task: str = "text2text-generation"
    """Task, as transformers' pipelines name it."""
    sequence_length: int | tuple[int, ...] = OPEN
    """Tokens of a source, one length or several buckets; shorter sources are padded. None: 128."""
    decoder_sequence_length: int = OPEN
    """Tokens of a target, with its first one. None: 128."""
    output_attentions: bool = False
    """Return the attention weights of every layer of encoder and decoder too."""
    output_hidden_states: bool = False
    """Return the hidden states of every layer of encoder and decoder too."""

    @property
    def source_results(self) -> tuple[str, ...]:
        return (*("hidden_states",) * self.output_hidden_states, *("attentions",) * self.output_attentions)

    @property
    def target_results(self) -> tuple[str, ...]:
        attentions = ("decoder_attentions", "cross_attentions")
        return (*("decoder_hidden_states",) * self.output_hidden_states, *attentions * self.output_attentions)

    def resolve(self, *, num_positions: int | None) -> Self:
        """Return the complete configuration, with both lengths.

        Args:
            num_positions: limit of the model's position tables; None: positions are relative.

        Raises:
            ConfigError: a length is beyond that; both are named.
        """
        names = ("sequence_length", "decoder_sequence_length")
        default = min(DEFAULT_LENGTH, num_positions or DEFAULT_LENGTH)
        lengths = self._lengths(dict.fromkeys(names, default), dict.fromkeys(names, num_positions))
        return self.completed(**lengths)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NeuronSpeechSeq2SeqConfig(EncoderDecoderConfig):
    """Static shapes, arithmetic and target of one compiled audio encoder with a text decoder.

    Example:
        ```python
        from optimum_neuron import NeuronSpeechSeq2SeqConfig

        config = NeuronSpeechSeq2SeqConfig(audio_sequence_length=[80_000, 160_000]).resolve(num_positions=512)
        assert config.source_buckets == (80_000, 160_000)
        assert config.decoder_sequence_length == 512
        ```
    """

    source_axes = ("audio_sequence_length", "nb_max_frames")

    task: str = "automatic-speech-recognition"
    """Task, as transformers' pipelines name it."""
    audio_sequence_length: int | tuple[int, ...] | None = None
    """Samples of a recording (Moonshine), one length or several buckets; shorter ones are padded. None: 160,000, which
    is 10 seconds at 16 kHz."""
    nb_max_frames: int | None = None
    """Frames of a spectrogram, which the model fixes: 3,000 for Whisper, which is 30 seconds. None: that number."""
    decoder_sequence_length: int = OPEN
    """Tokens of a target, with its first ones. None: what the model allows."""
    output_attentions: bool = False
    """Return the weights of cross-attention too (Whisper): `generate` reads word timestamps from them."""

    def resolve(self, *, num_positions: int, num_frames: int | None = None) -> Self:
        """Return the complete configuration, with both lengths.

        Args:
            num_positions: limit of the decoder's position table.
            num_frames: frames that a model of spectrograms reads; None: it reads recordings.

        Raises:
            ConfigError: a length differs from the model's or is beyond it, or the model has no such axis (all are
                named); or weights of attention are requested of a model other than Whisper.
        """
        if self.output_attentions and num_frames is None:
            message = "output_attentions=True needs Whisper, which reads word timestamps from them."
            raise ConfigError(message, hint="Remove output_attentions.", option="output_attentions", value=True)
        source = {"audio_sequence_length": DEFAULT_SAMPLES} if num_frames is None else {"nb_max_frames": num_frames}
        defaults = source | {"decoder_sequence_length": num_positions}
        lengths = self._lengths(defaults, {"decoder_sequence_length": num_positions})
        frames = lengths.get("nb_max_frames")
        if frames != num_frames:
            message = f"nb_max_frames is {frames}, but the model always reads {num_frames} frames."
            details = {"option": "nb_max_frames", "value": frames, "limit": num_frames}
            raise ConfigError(message, hint="Remove nb_max_frames.", **details)
        return self.completed(**lengths)

    @property
    def target_results(self) -> tuple[str, ...]:
        return ("cross_attentions",) * self.output_attentions
