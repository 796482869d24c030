"""The kind of models that read audio and write a text: Whisper and Moonshine.

Their sources are in `sources.py`; graphs and comparison are those of `plan.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...sources import ModelSource
from .configuration import NeuronSpeechSeq2SeqConfig
from .plan import EncoderDecoderKind
from .sources import SPEECH


class SpeechKind(EncoderDecoderKind[NeuronSpeechSeq2SeqConfig]):
    """Models that transcribe with a decoder."""

    name = "speech"
    config_class = NeuronSpeechSeq2SeqConfig
    synonyms: ClassVar[Mapping[str, str]] = {"sequence_length": "decoder_sequence_length"}

    def unserved(self, source: ModelSource, task: str) -> str:
        return "" if source.config.model_type in SPEECH else f"only {', '.join(SPEECH)} and CTC models are implemented"

    def resolve(
        self, source: ModelSource, config: NeuronSpeechSeq2SeqConfig, *, trust_remote_code: bool
    ) -> NeuronSpeechSeq2SeqConfig:
        model = source.config
        if model.model_type != "whisper":
            return config.resolve(num_positions=model.max_position_embeddings)
        return config.resolve(num_positions=model.max_target_positions, num_frames=2 * model.max_source_positions)


KIND = SpeechKind()
