"""Pipelines of transformers that read recordings, which refuse another sampling rate than the model's.

transformers resamples with torchaudio where that is installed. Nothing else here knows about sound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import AudioClassificationPipeline, AutomaticSpeechRecognitionPipeline
from transformers.utils import is_torchaudio_available

from ..errors import ConfigError, refusal
from ..plain_json import read_object

if TYPE_CHECKING:
    from ..modeling.loading import NeuronModel


class _Recordings:
    """What both pipelines do first with a recording."""

    feature_extractor: Any

    def preprocess(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Check the sampling rate, then go on as transformers does."""
        rate = inputs.get("sampling_rate") if isinstance(inputs, dict) else None
        trained = self.feature_extractor.sampling_rate
        if rate not in (None, trained) and not is_torchaudio_available():
            raise ConfigError(
                refusal(
                    asked=f"a recording of {rate} samples per second",
                    found=f"the model hears {trained}, and torchaudio is not installed",
                    why="at another rate the same sound looks like another one",
                    do=f"resample recordings to {trained}, or install torchaudio, with which transformers does it",
                )
            )
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


def require_rate(extractor: Any, model: NeuronModel) -> None:
    """Refuse to hand recordings of one sampling rate to a model that was trained on another.

    Raises:
        ConfigError: the feature extractor is not for the model's rate.
    """
    path = model.source_folder / "preprocessor_config.json"
    trained = read_object(path).get("sampling_rate") if path.is_file() else None
    found = getattr(extractor, "sampling_rate", None)
    if None not in (trained, found) and trained != found:
        raise ConfigError(
            refusal(
                asked=f"a feature extractor for {found} samples per second",
                found=f"the model's own is for {trained}",
                why="at another rate the same sound looks like another one",
                do=f"resample recordings to {trained}, and leave feature_extractor out",
            )
        )
