"""The models users hold: transformers' interfaces over compiled programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .causal_lm import NeuronModelForCausalLM
    from .embedding import NeuronModelForEmbedding
    from .image_text import NeuronModelForImageTextToText
    from .reranking import NeuronModelForTextReranking
    from .sentences import NeuronSentenceTransformer
    from .seq2seq import NeuronModelForSeq2SeqLM
    from .speech import NeuronModelForSpeechSeq2Seq, NeuronWhisperForConditionalGeneration
    from .tasks import (
        NeuronModelForAudioClassification,
        NeuronModelForAudioFrameClassification,
        NeuronModelForCTC,
        NeuronModelForDepthEstimation,
        NeuronModelForFeatureExtraction,
        NeuronModelForImageClassification,
        NeuronModelForMaskedLM,
        NeuronModelForMultipleChoice,
        NeuronModelForObjectDetection,
        NeuronModelForQuestionAnswering,
        NeuronModelForSemanticSegmentation,
        NeuronModelForSequenceClassification,
        NeuronModelForTokenClassification,
        NeuronModelForXVector,
        NeuronModelForZeroShotImageClassification,
    )
    from .traced import NeuronTracedModel

__all__ = [
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
    "NeuronTracedModel",
    "NeuronWhisperForConditionalGeneration",
]

_MODULES = {
    "NeuronModelForCausalLM": "causal_lm",
    "NeuronModelForEmbedding": "embedding",
    "NeuronModelForImageTextToText": "image_text",
    "NeuronModelForSeq2SeqLM": "seq2seq",
    "NeuronModelForSpeechSeq2Seq": "speech",
    "NeuronModelForTextReranking": "reranking",
    "NeuronSentenceTransformer": "sentences",
    "NeuronTracedModel": "traced",
    "NeuronWhisperForConditionalGeneration": "speech",
}
"""Where a name is; every other one is in `tasks.py`."""

__getattr__ = lazy_names(__name__, {name: _MODULES.get(name, "tasks") for name in __all__})
