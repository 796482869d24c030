"""Rank documents for a query: a compiled cross-encoder with the interface of sentence-transformers.

ranker = NeuronModelForTextReranking.from_pretrained("cross-encoder/ms-marco-MiniLM-L6-v2", export=True)
ranker.rank("which pet?", ["a cat", "a stone"])
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from ..base.core import Choice
from ..base.model_facts import facts_of
from ..errors import ConfigError, ModelError
from .checks import check_counts
from .model import load_preprocessor
from .sentences import in_batches
from .tasks import NeuronModelForSequenceClassification


class NeuronModelForTextReranking(NeuronModelForSequenceClassification):
    """A compiled cross-encoder, which scores how well each document answers a query."""

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The model's own tokenizer."""
        return load_preprocessor("AutoTokenizer", self.source_folder)

    @functools.cached_property
    def activation(self) -> Choice[str]:
        """Function from the logit of a single label to its score, "sigmoid" or "identity", set in `config.json`.

        Raises:
            ModelError: the configuration sets another function.
        """
        saved = facts_of(self.config).sentence_transformers or {}
        path = saved.get("activation_fn") or facts_of(self.config).sbert_ce_default_activation_function
        if path is None:
            return Choice(value="sigmoid", reason="the default: config.json sets no activation")
        name = path.rpartition(".")[2].lower()
        if name not in ("sigmoid", "identity"):
            message = f"config.json sets the activation {path}, but only Sigmoid and Identity are supported."
            raise ModelError(message, hint="Call the model, and compute the scores from its logits.", activation=path)
        return Choice(value=name, reason=f"config.json sets {path}")

    def predict(self, pairs: Sequence[Sequence[str]], *, batch_size: int = 32) -> torch.Tensor:
        """Return a score for each pair of texts: `activation` of a single label, the logits of several.

        Raises:
            ConfigError: there are no pairs, or `batch_size` is less than 1.
            ModelError: the model's configuration sets an unsupported activation.
        """
        check_counts(batch_size=batch_size)
        if not len(pairs) or any(isinstance(pair, str) or len(pair) != 2 for pair in pairs):
            message = "A cross-encoder takes one or more pairs of texts."
            raise ConfigError(message, hint="Pass [(query, document), ...].", argument="pairs", num_pairs=len(pairs))
        logits = in_batches(self._logits, pairs, length=lambda pair: sum(map(len, pair)), batch_size=batch_size)
        if logits.shape[1] > 1:
            return logits
        return logits[:, 0].sigmoid() if self.activation.value == "sigmoid" else logits[:, 0]

    def _logits(self, pairs: list[Sequence[str]]) -> torch.Tensor:
        left, right = map(list, zip(*pairs, strict=True))
        length = min(self.neuron_config.buckets("sequence_length")[-1], self.tokenizer.model_max_length)
        features = self.tokenizer(left, right, padding=True, truncation=True, max_length=length, return_tensors="pt")
        logits: torch.Tensor = self(**{k: v for k, v in features.items() if k in self.signature.names}).logits
        return logits

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_k: int | None = None,
        return_documents: bool = False,
        batch_size: int = 32,
    ) -> list[dict[str, Any]]:
        """Return `{"corpus_id", "score"}` of the best documents, best first; `"text"` with `return_documents`.

        Raises:
            ConfigError: there are no documents, or the model has several labels.
        """
        if self.config.num_labels != 1:
            message = f"rank() needs a model with one label, but this one has {self.config.num_labels}."
            raise ConfigError(message, hint="Use predict().", num_labels=self.config.num_labels)
        scores = self.predict([(query, document) for document in documents], batch_size=batch_size)
        best = scores.argsort(descending=True)[:top_k].tolist()
        rows = [{"corpus_id": index, "score": float(scores[index])} for index in best]
        return [{**row, "text": documents[row["corpus_id"]]} for row in rows] if return_documents else rows
