"""One class for each task of one forward. They differ in the task; the rest is `NeuronTracedModel`."""

from __future__ import annotations

from typing import Any

import torch
from transformers.loss.loss_utils import ForQuestionAnsweringLoss

from .registration import register
from .traced import NeuronTracedModel


@register
class NeuronModelForFeatureExtraction(NeuronTracedModel):
    """Hidden states and, where the model has a pooler, one vector for each row."""

    task = "feature-extraction"


@register
class NeuronModelForMaskedLM(NeuronTracedModel):
    """Logits of the vocabulary for every token."""

    task = "fill-mask"


@register
class NeuronModelForSequenceClassification(NeuronTracedModel):
    """Logits of the labels for each row of text."""

    task = "text-classification"


@register
class NeuronModelForTokenClassification(NeuronTracedModel):
    """Logits of the labels for every token."""

    task = "token-classification"


@register
class NeuronModelForQuestionAnswering(NeuronTracedModel):
    """Logits of where an answer begins and ends."""

    task = "question-answering"

    def forward(
        self, *args: torch.Tensor, start_positions: Any = None, end_positions: Any = None, **inputs: Any
    ) -> Any:
        """Run the compiled program, and compute the loss on the host where the answers' positions are given.

        Args:
            *args: as `NeuronTracedModel.forward`.
            start_positions: where each answer begins, in tokens.
            end_positions: where it ends.
            **inputs: as `NeuronTracedModel.forward`.
        """
        if start_positions is None or end_positions is None:
            return super().forward(*args, **inputs)
        is_tuple = inputs.pop("return_dict", None) is False
        found = super().forward(*args, **inputs)
        loss = ForQuestionAnsweringLoss(found.start_logits, found.end_logits, start_positions, end_positions)
        output = type(found)(loss=loss, **found)
        return output.to_tuple() if is_tuple else output


@register
class NeuronModelForMultipleChoice(NeuronTracedModel):
    """A logit for each choice; inputs are [rows, choices, tokens]."""

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
    """How well each text describes each image."""

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
