"""`NeuronAudioTextConfig`: shapes of a model that reads audio and text.

It knows nothing of architectures: `architectures.py` says how many tokens an audio takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Self

from ....errors import ConfigError
from ....options.configuration import NeuronConfig
from ....options.decoder_options import chunk_errors
from ....options.option import OPEN, option
from ....options.sizes import count_errors

AUDIO_SIZES = ("max_num_audios", "audio_batch_size")
"""Fields that a configuration has beyond those of a decoder."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NeuronAudioTextConfig(NeuronConfig):
    """Static shapes, arithmetic and target of one compiled audio encoder and decoder.

    Example:
        ```python
        from optimum_neuron import NeuronAudioTextConfig

        config = NeuronAudioTextConfig(sequence_length=1024, prefill_buckets=(512, 1024), max_num_audios=2)
        resolved = config.resolve(max_position_embeddings=8192, audio_tokens=375)
        assert (resolved.prefill_buckets, resolved.max_num_audios) == ((512, 1024), 2)
        ```
    """

    sizes_of_model = (*NeuronConfig.sizes_of_model, "max_num_audios")

    task: str = "any-to-any"
    """Task, as transformers' pipelines name it."""
    max_num_audios: int = option(
        OPEN, help="audios of a prompt (any-to-any); one that is longer than 30 seconds counts as its parts"
    )
    """Audios of a prompt of the length that the model was trained on; a longer one counts as its parts. None: 1."""
    audio_batch_size: int = option(1, help="audios that the audio encoder takes at once (any-to-any)")
    """Audios that the audio encoder takes at once; fewer are padded, more are split."""

    @property
    def axes(self) -> tuple[str, ...]:
        return (*super().axes, *AUDIO_SIZES)

    def _problems(self) -> Iterator[ConfigError]:
        yield from count_errors(self, ("max_num_audios",), optional=True)
        yield from count_errors(self, ("audio_batch_size",))
        yield from super()._problems()
        yield from chunk_errors(self, "audio")

    def resolve(self, *, max_position_embeddings: int, audio_tokens: int) -> Self:  # type: ignore[override]
        """Return the complete configuration, with lengths for a model.

        Args:
            max_position_embeddings: positions of the decoder.
            audio_tokens: tokens of a prompt that stand for an audio of full length.

        Raises:
            ConfigError: a sequence is too long for the model, or does not hold so many audios.
        """
        lengths = self._lengths(max_position_embeddings)
        length = lengths["sequence_length"]
        num_audios = self.max_num_audios or 1
        needed = num_audios * audio_tokens + 1
        if needed > length:
            message = f"max_num_audios is {num_audios}, but an audio takes {audio_tokens} of sequence_length={length}."
            details = {"option": "max_num_audios", "value": num_audios, "sequence_length": needed}
            raise ConfigError(message, hint=f"Pass sequence_length={needed} or more.", **details)
        return self.completed(**lengths, max_num_audios=num_audios)
