"""Shapes of models that read a source and write a target: `NeuronSeq2SeqConfig` for texts and
`NeuronSpeechSeq2SeqConfig` for sounds.

It knows nothing of architectures: `plan.py` and `speech.py` ask the model for its limits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from ...configuration import CompileConfig, count_refusal, is_count, is_rising
from ...errors import ConfigError, refusal

DEFAULT_LENGTH = 128
"""Tokens of source and target where nothing else is asked for."""

DEFAULT_SAMPLES = 160_000
"""Samples of a recording where nothing else is asked for: 10 seconds at 16 kHz."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(CompileConfig):
    """What texts and sounds have in common."""

    source_axes: ClassVar[tuple[str, ...]]
    """Fields that have the length of a source; a model has one of them."""
    resolved = ("decoder_sequence_length",)

    batch_size: int = 1
    """Sequences of every graph; fewer are padded, more are split."""
    num_beams: int = 1
    """Beams of `generate` where it is called without `num_beams`; the decoder's graphs have `batch_size * num_beams`
    rows."""
    decoder_sequence_length: int | None = None
    """Tokens of a target, with the one that it starts with. None: what the task's models are used with."""

    def _problems(self) -> Iterator[str]:
        for name in ("batch_size", "num_beams"):
            if not is_count(getattr(self, name)):
                yield count_refusal(name, getattr(self, name))
        if self.decoder_sequence_length is not None and not is_count(self.decoder_sequence_length):
            yield count_refusal("decoder_sequence_length", self.decoder_sequence_length)
        for axis in self.source_axes:
            length = getattr(self, axis)
            if isinstance(length, (list, tuple)) and not is_rising(length):
                yield refusal(
                    asked=f"{axis}={length}",
                    found="not a rising list of lengths",
                    why="a source goes to the smallest bucket that holds it",
                    do="pass for example [64, 128]",
                )
            elif length is not None and not isinstance(length, (list, tuple)) and not is_count(length):
                yield count_refusal(axis, length)
        yield from super()._problems()

    def open_ends(self) -> list[str]:
        """Return the fields that have no value, though a model needs them."""
        has_source = any(getattr(self, axis) is not None for axis in self.source_axes)
        return super().open_ends() + ([] if has_source else [" or ".join(self.source_axes)])

    @property
    def axes(self) -> tuple[str, ...]:
        """Fields that are sizes of the model's inputs."""
        return ("batch_size", self._source_axis, "decoder_sequence_length")

    @property
    def _source_axis(self) -> str:
        return next(axis for axis in self.source_axes if getattr(self, axis) is not None)

    @property
    def source_buckets(self) -> tuple[int, ...]:
        """Source lengths that are compiled."""
        length = getattr(self, self._source_axis)
        return length if isinstance(length, tuple) else (length,)

    @property
    def num_target_rows(self) -> int:
        """Rows of the decoder's graphs: a beam is a row."""
        return self.batch_size * self.num_beams

    @property
    def num_target_slots(self) -> int:
        """Tokens of the longest target: slots of the self-attention cache."""
        assert self.decoder_sequence_length is not None, "resolved configuration"
        return self.decoder_sequence_length

    @property
    def source_results(self) -> tuple[str, ...]:
        """What graphs of sources return of each layer, beside the last hidden states."""
        return ()

    @property
    def target_results(self) -> tuple[str, ...]:
        """What graphs of targets return of each layer, beside logits."""
        return ()

    @property
    def returns_attentions(self) -> bool:
        """Whether graphs of targets return weights of cross-attention."""
        return "cross_attentions" in self.target_results

    def _filled(self, defaults: Mapping[str, int], limits: Mapping[str, int | None]) -> Self:
        """A copy with every length filled in.

        Raises:
            ConfigError: lengths are beyond the model's limits, or of an axis that it has not; all are named.
        """
        asked = {axis: getattr(self, axis) for axis in (*self.source_axes, "decoder_sequence_length")}
        lengths: dict[str, Any] = {axis: asked[axis] or size for axis, size in defaults.items()}
        filled = dataclasses.replace(self, **lengths)
        problems = [
            refusal(
                asked=f"{axis}={size}",
                found="the model has no such axis",
                why=f"its lengths are {' and '.join(defaults)}",
                do=f"leave {axis} out",
            )
            for axis, size in asked.items()
            if size is not None and axis not in defaults
        ]
        longest = {axis: size[-1] if isinstance(size, tuple) else size for axis, size in lengths.items()}
        problems += [
            refusal(
                asked=f"{axis}={longest[axis]}",
                found=f"the model has {limit} positions",
                why="positions beyond that were never trained",
                do=f"pass {axis}={limit} or less",
            )
            for axis, limit in limits.items()
            if limit is not None and longest[axis] > limit
        ]
        if problems:
            raise ConfigError("\n".join(problems))
        return filled


@dataclasses.dataclass(frozen=True, kw_only=True)
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
    sequence_length: int | tuple[int, ...] | None = None
    """Tokens of a source, one length or several buckets; shorter sources are padded. None: 128."""
    decoder_sequence_length: int | None = None
    """Tokens of a target, with the one that it starts with. None: 128."""
    output_attentions: bool = False
    """Return the attention weights of every layer of encoder and decoder too."""
    output_hidden_states: bool = False
    """Return the hidden states of every layer of encoder and decoder too."""

    @property
    def source_results(self) -> tuple[str, ...]:
        """What graphs of sources return of each layer, beside the last hidden states."""
        return (*("hidden_states",) * self.output_hidden_states, *("attentions",) * self.output_attentions)

    @property
    def target_results(self) -> tuple[str, ...]:
        """What graphs of targets return of each layer, beside logits."""
        attentions = ("decoder_attentions", "cross_attentions")
        return (*("decoder_hidden_states",) * self.output_hidden_states, *attentions * self.output_attentions)

    def resolve(self, *, num_positions: int | None) -> Self:
        """Return a copy with both lengths filled in.

        Args:
            num_positions: what the model's tables of positions allow; None: positions are relative.

        Raises:
            ConfigError: a length is beyond that; both are named.
        """
        names = ("sequence_length", "decoder_sequence_length")
        default = min(DEFAULT_LENGTH, num_positions or DEFAULT_LENGTH)
        return self._filled(dict.fromkeys(names, default), dict.fromkeys(names, num_positions))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeuronSpeechSeq2SeqConfig(EncoderDecoderConfig):
    """Static shapes, arithmetic and target of one compiled encoder of sounds with a decoder of text.

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
    decoder_sequence_length: int | None = None
    """Tokens of a target, with those that it starts with. None: what the model allows."""
    output_attentions: bool = False
    """Return the weights of cross-attention too (Whisper): `generate` reads from them when each word was spoken."""

    def resolve(self, *, num_positions: int, num_frames: int | None = None) -> Self:
        """Return a copy with both lengths filled in.

        Args:
            num_positions: what the decoder's table of positions allows.
            num_frames: frames that a model of spectrograms reads; None: it reads recordings.

        Raises:
            ConfigError: a length is another one than the model's or beyond it, or it has no such axis, all of which are
                named; or weights of attention were asked for, and the model is not Whisper.
        """
        if self.output_attentions and num_frames is None:
            raise ConfigError(
                refusal(
                    asked="output_attentions=True",
                    found="a model of recordings",
                    why="weights of cross-attention are for Whisper's timestamps of words",
                    do="leave output_attentions out",
                )
            )
        source = {"audio_sequence_length": DEFAULT_SAMPLES} if num_frames is None else {"nb_max_frames": num_frames}
        filled = self._filled(
            source | {"decoder_sequence_length": num_positions}, {"decoder_sequence_length": num_positions}
        )
        if num_frames is not None and filled.nb_max_frames != num_frames:
            raise ConfigError(
                refusal(
                    asked=f"nb_max_frames={filled.nb_max_frames}",
                    found=f"the model reads {num_frames} frames, never more or fewer",
                    why="its positions are added to all of them, and silence is its padding",
                    do="leave nb_max_frames out",
                )
            )
        return filled

    @property
    def target_results(self) -> tuple[str, ...]:
        """What graphs of targets return of each layer, beside logits."""
        return ("cross_attentions",) * self.output_attentions
