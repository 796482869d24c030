"""Models that read sounds and write a text: Whisper and Moonshine.

What they read is in `sources.py`; graphs and comparison are those of `plan.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...errors import ModelError, refusal
from ..source import ModelSource
from .configuration import NeuronSpeechSeq2SeqConfig
from .plan import Seq2SeqKind
from .sources import SPEECH


class SpeechKind(Seq2SeqKind):
    """Models that transcribe with a decoder."""

    name = "speech"
    config_class = NeuronSpeechSeq2SeqConfig
    options = (
        *("batch_size", "num_beams", "audio_sequence_length", "nb_max_frames", "decoder_sequence_length"),
        "output_attentions",
    )
    synonyms: ClassVar[Mapping[str, str]] = {"sequence_length": "decoder_sequence_length"}

    def resolve(self, source: ModelSource, config: Any, *, trust_remote_code: bool) -> Any:
        """Fill in both lengths."""
        model = source.config
        if model.model_type not in SPEECH:
            raise ModelError(
                refusal(
                    asked=f"{config.task} with a {model.model_type} model",
                    found="an architecture that no graphs are made for here",
                    why=f"encoders of sounds differ in what they read; known are {', '.join(SPEECH)}",
                    do="pass a checkpoint of one of these, or of a model with connectionist temporal classification",
                )
            )
        if model.model_type == "whisper":
            return config.resolve(num_positions=model.max_target_positions, num_frames=2 * model.max_source_positions)
        return config.resolve(num_positions=model.max_position_embeddings)


KIND = SpeechKind()
