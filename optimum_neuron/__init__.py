"""The Optimum experience for AWS Trainium and Inferentia on a simulated NeuronCore: no hardware needed.

    from optimum_neuron import NeuronModelForCausalLM
    model = NeuronModelForCausalLM.from_pretrained("smollm2", export=True, sequence_length=512)

Names are imported when they are first used, so `import optimum_neuron` is quick and needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import wiring  # noqa: F401  (joins packages that do not know each other)
from .lazy import lazy_names
from .version import __version__

if TYPE_CHECKING:
    from .buckets import suggest_buckets
    from .checking import check_model
    from .configuration import NeuronConfig
    from .exporters import main_export
    from .exporters.encoders.configuration import NeuronEncoderConfig
    from .exporters.image_text.configuration import NeuronImageTextConfig
    from .exporters.seq2seq.configuration import NeuronSeq2SeqConfig, NeuronSpeechSeq2SeqConfig
    from .modeling import (
        NeuronModelForAudioClassification,
        NeuronModelForAudioFrameClassification,
        NeuronModelForCausalLM,
        NeuronModelForCTC,
        NeuronModelForDepthEstimation,
        NeuronModelForEmbedding,
        NeuronModelForFeatureExtraction,
        NeuronModelForImageClassification,
        NeuronModelForImageTextToText,
        NeuronModelForMaskedLM,
        NeuronModelForMultipleChoice,
        NeuronModelForObjectDetection,
        NeuronModelForQuestionAnswering,
        NeuronModelForSemanticSegmentation,
        NeuronModelForSeq2SeqLM,
        NeuronModelForSequenceClassification,
        NeuronModelForSpeechSeq2Seq,
        NeuronModelForTextReranking,
        NeuronModelForTokenClassification,
        NeuronModelForXVector,
        NeuronModelForZeroShotImageClassification,
        NeuronSentenceTransformer,
        NeuronTracedModel,
        NeuronWhisperForConditionalGeneration,
    )
    from .pipelines import pipeline
    from .trainer import NeuronTrainer, NeuronTrainingArguments
    from .trainer.post_training import NeuronDPOConfig as NeuronDPOConfig
    from .trainer.post_training import NeuronDPOTrainer as NeuronDPOTrainer
    from .trainer.post_training import NeuronGRPOConfig as NeuronGRPOConfig
    from .trainer.post_training import NeuronGRPOTrainer as NeuronGRPOTrainer
    from .trainer.post_training import NeuronORPOConfig as NeuronORPOConfig
    from .trainer.post_training import NeuronORPOTrainer as NeuronORPOTrainer
    from .trainer.post_training import NeuronRewardConfig as NeuronRewardConfig
    from .trainer.post_training import NeuronRewardTrainer as NeuronRewardTrainer
    from .trainer.post_training import NeuronSFTConfig as NeuronSFTConfig
    from .trainer.post_training import NeuronSFTTrainer as NeuronSFTTrainer

__all__ = [
    "NeuronConfig",
    "NeuronEncoderConfig",
    "NeuronImageTextConfig",
    "NeuronModelForAudioClassification",
    "NeuronModelForAudioFrameClassification",
    "NeuronModelForCTC",
    "NeuronModelForCausalLM",
    "NeuronModelForDepthEstimation",
    "NeuronModelForEmbedding",
    "NeuronModelForFeatureExtraction",
    "NeuronModelForImageClassification",
    "NeuronModelForImageTextToText",
    "NeuronModelForMaskedLM",
    "NeuronModelForMultipleChoice",
    "NeuronModelForObjectDetection",
    "NeuronModelForQuestionAnswering",
    "NeuronModelForSemanticSegmentation",
    "NeuronModelForSeq2SeqLM",
    "NeuronModelForSequenceClassification",
    "NeuronModelForSpeechSeq2Seq",
    "NeuronModelForTextReranking",
    "NeuronModelForTokenClassification",
    "NeuronModelForXVector",
    "NeuronModelForZeroShotImageClassification",
    "NeuronSentenceTransformer",
    "NeuronSeq2SeqConfig",
    "NeuronSpeechSeq2SeqConfig",
    "NeuronTracedModel",
    "NeuronTrainer",
    "NeuronTrainingArguments",
    "NeuronWhisperForConditionalGeneration",
    "__version__",
    "check_model",
    "main_export",
    "pipeline",
    "suggest_buckets",
]

_MODULES = {
    "NeuronConfig": "configuration",
    "NeuronEncoderConfig": "exporters.encoders.configuration",
    "NeuronImageTextConfig": "exporters.image_text.configuration",
    "NeuronModelForAudioClassification": "modeling",
    "NeuronModelForAudioFrameClassification": "modeling",
    "NeuronModelForCTC": "modeling",
    "NeuronModelForCausalLM": "modeling",
    "NeuronModelForDepthEstimation": "modeling",
    "NeuronModelForEmbedding": "modeling",
    "NeuronModelForFeatureExtraction": "modeling",
    "NeuronModelForImageClassification": "modeling",
    "NeuronModelForImageTextToText": "modeling",
    "NeuronModelForMaskedLM": "modeling",
    "NeuronModelForMultipleChoice": "modeling",
    "NeuronModelForObjectDetection": "modeling",
    "NeuronModelForQuestionAnswering": "modeling",
    "NeuronModelForSemanticSegmentation": "modeling",
    "NeuronModelForSeq2SeqLM": "modeling",
    "NeuronModelForSequenceClassification": "modeling",
    "NeuronModelForSpeechSeq2Seq": "modeling",
    "NeuronModelForTextReranking": "modeling",
    "NeuronModelForTokenClassification": "modeling",
    "NeuronModelForXVector": "modeling",
    "NeuronModelForZeroShotImageClassification": "modeling",
    "NeuronSentenceTransformer": "modeling",
    "NeuronSeq2SeqConfig": "exporters.seq2seq.configuration",
    "NeuronSpeechSeq2SeqConfig": "exporters.seq2seq.configuration",
    "NeuronTracedModel": "modeling",
    "NeuronTrainer": "trainer",
    "NeuronTrainingArguments": "trainer",
    "NeuronWhisperForConditionalGeneration": "modeling",
    "check_model": "checking",
    "main_export": "exporters",
    "pipeline": "pipelines",
    "suggest_buckets": "buckets",
}

TRAINING_NAMES = (
    "NeuronDPOConfig",
    "NeuronDPOTrainer",
    "NeuronGRPOConfig",
    "NeuronGRPOTrainer",
    "NeuronORPOConfig",
    "NeuronORPOTrainer",
    "NeuronRewardConfig",
    "NeuronRewardTrainer",
    "NeuronSFTConfig",
    "NeuronSFTTrainer",
)
"""Names that need TRL, from the extra `training`; an `import *` leaves them out, so that it works without."""

__getattr__ = lazy_names(__name__, {**_MODULES, **dict.fromkeys(TRAINING_NAMES, "trainer.post_training")})


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *TRAINING_NAMES})
