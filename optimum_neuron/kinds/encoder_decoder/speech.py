"""The kind of models that read audio and write a text: Whisper and Moonshine.

Their sources are in `sources.py`; graphs and comparison are those of `plan.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...sources import ModelSource
from .configuration import NeuronSpeechSeq2SeqConfig, ResolvedSpeechConfig
from .plan import Seq2SeqKind
from .sources import SPEECH


class SpeechKind(Seq2SeqKind):
    """Models that transcribe with a decoder."""

    name = "speech"
    config_class = NeuronSpeechSeq2SeqConfig
    resolved_class = ResolvedSpeechConfig
    synonyms: ClassVar[Mapping[str, str]] = {"sequence_length": "decoder_sequence_length"}

    def unserved(self, source: ModelSource, task: str) -> str:
        return "" if source.config.model_type in SPEECH else f"only {', '.join(SPEECH)} and CTC models are implemented"

    def resolve(self, source: ModelSource, config: Any, *, trust_remote_code: bool) -> ResolvedSpeechConfig:
        model = source.config
        if model.model_type != "whisper":
            return config.resolve(num_positions=model.max_position_embeddings)
        return config.resolve(num_positions=model.max_target_positions, num_frames=2 * model.max_source_positions)


KIND = SpeechKind()
