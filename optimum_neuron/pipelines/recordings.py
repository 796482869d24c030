"""Pipelines of transformers that read recordings, which reject another sampling rate than the model's.

transformers resamples with torchaudio where that is installed. Nothing else here knows about sound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import AudioClassificationPipeline, AutomaticSpeechRecognitionPipeline
from transformers.utils import is_torchaudio_available

from ..base.foreign import tokenizer_facts
from ..errors import ConfigError
from ..files.plain_json import read_object

if TYPE_CHECKING:
    from ..modeling import NeuronModel


class _Recordings:
    """The first step of both pipelines with a recording."""

    feature_extractor: Any

    def preprocess(self, inputs: object, *args: object, **kwargs: object) -> Any:
        """Check the sampling rate, then go on as transformers does."""
        rate = inputs.get("sampling_rate") if isinstance(inputs, dict) else None
        trained = self.feature_extractor.sampling_rate
        if rate not in (None, trained) and not is_torchaudio_available():
            message = f"The recording has {rate} samples per second, the model needs {trained}; no torchaudio is here."
            hint = f"Resample recordings to {trained}, or install torchaudio."
            raise ConfigError(message, hint=hint, sampling_rate=rate, expected=trained)
        return super().preprocess(inputs, *args, **kwargs)  # type: ignore[misc]


class RecognitionPipeline(_Recordings, AutomaticSpeechRecognitionPipeline):
    """transformers' pipeline for speech recognition."""


class RecordingClassificationPipeline(_Recordings, AudioClassificationPipeline):
    """transformers' pipeline for the classification of recordings."""


PIPELINES = {
    "automatic-speech-recognition": RecognitionPipeline,
    "audio-classification": RecordingClassificationPipeline,
}
"""Name of a pipeline to its class."""


def require_rate(extractor: object, model: NeuronModel) -> None:
    """Check that the feature extractor has the sampling rate that the model was trained on."""
    path = model.source_folder / "preprocessor_config.json"
    trained = read_object(path).get("sampling_rate") if path.is_file() else None
    rate = tokenizer_facts(extractor).sampling_rate
    if None not in (trained, rate) and trained != rate:
        message = f"The feature extractor is for {rate} samples per second, but the model's own is for {trained}."
        hint = f"Resample recordings to {trained}, and leave feature_extractor out."
        raise ConfigError(message, hint=hint, sampling_rate=rate, expected=trained)
