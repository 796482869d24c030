"""One class for each task of single-pass models; the implementation is `NeuronTracedModel`."""

from __future__ import annotations

from typing import Any

import torch
from transformers.loss.loss_utils import ForQuestionAnsweringLoss

from .registration import register
from .traced import NeuronTracedModel


@register
class NeuronModelForFeatureExtraction(NeuronTracedModel):
    """Hidden states and, if the model has a pooler, one vector per sequence."""

    task = "feature-extraction"


@register
class NeuronModelForMaskedLM(NeuronTracedModel):
    """Logits of the vocabulary for every token."""

    task = "fill-mask"


@register
class NeuronModelForSequenceClassification(NeuronTracedModel):
    """Logits of the labels for each text."""

    task = "text-classification"


@register
class NeuronModelForTokenClassification(NeuronTracedModel):
    """Logits of the labels for every token."""

    task = "token-classification"


@register
class NeuronModelForQuestionAnswering(NeuronTracedModel):
    """Logits of the start and the end of an answer."""

    task = "question-answering"

    def forward(
        self,
        *args: torch.Tensor,
        start_positions: torch.Tensor | None = None,
        end_positions: torch.Tensor | None = None,
        **inputs: Any,
    ) -> Any:
        """Run the compiled program, and compute the loss on the host if the answers' positions are passed.

        Args:
            *args: as in `NeuronTracedModel.forward`.
            start_positions: first token of each answer.
            end_positions: last token of each answer.
            **inputs: as in `NeuronTracedModel.forward`.
        """
        if start_positions is None or end_positions is None:
            return super().forward(*args, **inputs)
        is_tuple = inputs.pop("return_dict", None) is False
        result = super().forward(*args, **inputs)
        loss = ForQuestionAnsweringLoss(result.start_logits, result.end_logits, start_positions, end_positions)
        output = type(result)(loss=loss, **result)
        return output.to_tuple() if is_tuple else output


@register
class NeuronModelForMultipleChoice(NeuronTracedModel):
    """A logit for each choice; inputs are [batch, choices, tokens]."""

    task = "multiple-choice"


@register
class NeuronModelForImageClassification(NeuronTracedModel):
    """Logits of the labels for each image."""

    task = "image-classification"


@register
class NeuronModelForSemanticSegmentation(NeuronTracedModel):
    """Logits of the labels for every pixel, in the model's resolution."""

    task = "semantic-segmentation"


@register
class NeuronModelForObjectDetection(NeuronTracedModel):
    """Logits of the labels and a box for each query."""

    task = "object-detection"


@register
class NeuronModelForZeroShotImageClassification(NeuronTracedModel):
    """Similarity of each image with each text."""

    task = "zero-shot-image-classification"


@register
class NeuronModelForDepthEstimation(NeuronTracedModel):
    """Depth of every pixel."""

    task = "depth-estimation"


@register
class NeuronModelForAudioClassification(NeuronTracedModel):
    """Logits of the labels for each recording."""

    task = "audio-classification"


@register
class NeuronModelForCTC(NeuronTracedModel):
    """Logits of the characters for every frame."""

    task = "automatic-speech-recognition"


@register
class NeuronModelForAudioFrameClassification(NeuronTracedModel):
    """Logits of the labels for every frame."""

    task = "audio-frame-classification"


@register
class NeuronModelForXVector(NeuronTracedModel):
    """One vector for each recording, for speaker verification."""

    task = "audio-xvector"
