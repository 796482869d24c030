"""A model with several classes behind a queue, as the server has cross-encoders."""

from __future__ import annotations

from typing import Any

import torch

from ..base.core import Choice
from ..base.model_facts import facts_of
from ..base.transformers_types import PreTrainedConfig
from ..modeling import NeuronModelForTextReranking
from ..serving import Features, ServedModel, TextModel, load_model

_LENGTHS, _LONGEST = (32, 128), 512


class Classifier(TextModel):
    """Probabilities of classes: softmax, or sigmoid for each class if a text may have several."""

    def __init__(self, served: ServedModel, config: PreTrainedConfig, *, is_exported: bool) -> None:
        longest = min(_LONGEST, (facts_of(config).max_position_embeddings or _LONGEST))
        defaults = {"batch_size": (1, 8), "sequence_length": [*(one for one in _LENGTHS if one < longest), longest]}
        model = load_model(NeuronModelForTextReranking, served, config, is_exported, defaults)
        super().__init__(model, served)
        limit = self.tokenizer.model_max_length
        self.max_length = min(model.neuron_config.buckets("sequence_length")[-1], limit)
        is_several = facts_of(config).problem_type == "multi_label_classification"
        self.activation = Choice(value="sigmoid" if is_several else "softmax", reason="problem_type in config.json")

    def features(self, texts: tuple[str, ...], body: Any) -> Features:
        """Return the features of a text, or of a pair."""
        return self._tokenized(body, *texts)

    def _compute(self, items: list[Features], is_wanted: Any) -> list[torch.Tensor]:
        with torch.inference_mode():
            logits = self.model(**self.padded(items)).logits.float()
        return list(logits.sigmoid() if self.activation.value == "sigmoid" else logits.softmax(-1))
