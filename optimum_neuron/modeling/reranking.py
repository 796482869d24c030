"""Rank documents for a query: a compiled cross-encoder with the interface of sentence-transformers.

ranker = NeuronModelForTextReranking.from_pretrained("cross-encoder/ms-marco-MiniLM-L6-v2", export=True)
ranker.rank("which pet?", ["a cat", "a stone"])
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from ..core import Choice
from ..errors import ConfigError, ModelError
from .checks import check_counts
from .facts import load_preprocessor
from .sentences import chunks
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
        saved = getattr(self.config, "sentence_transformers", None) or {}
        path = saved.get("activation_fn") or getattr(self.config, "sbert_ce_default_activation_function", None)
        if path is None:
            return Choice(value="sigmoid", reason="the default: config.json sets no activation")
        name = path.rpartition(".")[2].lower()
        if name not in ("sigmoid", "identity"):
            raise ModelError(
                f"config.json sets the activation {path}, but only Sigmoid and Identity are supported.",
                hint="Call the model, and compute the scores from its logits.",
                activation=path,
            )
        return Choice(value=name, reason=f"config.json sets {path}")

    def predict(self, pairs: Sequence[Sequence[str]], *, batch_size: int = 32) -> torch.Tensor:
        """Return a score for each pair of texts: `activation` of a single label, the logits of several.

        Raises:
            ConfigError: there are no pairs, or `batch_size` is less than 1.
            ModelError: the model's configuration sets an unsupported activation.
        """
        check_counts(batch_size=batch_size)
        if not len(pairs) or any(isinstance(pair, str) or len(pair) != 2 for pair in pairs):
            raise ConfigError(
                "A cross-encoder takes one or more pairs of texts.",
                hint="Pass [(query, document), ...].",
                argument="pairs",
                num_pairs=len(pairs),
            )
        order = sorted(range(len(pairs)), key=lambda index: -sum(map(len, pairs[index])))
        length = min(self.neuron_config.buckets("sequence_length")[-1], self.tokenizer.model_max_length)
        known = {spec.name for spec in self.signature.inputs}
        scores: list[torch.Tensor | None] = [None] * len(pairs)
        for indices in chunks(order, batch_size):
            left, right = zip(*(pairs[index] for index in indices), strict=True)
            features = self.tokenizer(
                list(left), list(right), padding=True, truncation=True, max_length=length, return_tensors="pt"
            )
            logits = self(**{name: tensor for name, tensor in features.items() if name in known}).logits
            for index, row in zip(indices, logits, strict=True):
                score = row[0] if len(row) == 1 else row
                scores[index] = score.sigmoid() if len(row) == 1 and self.activation.value == "sigmoid" else score
        return torch.stack([score for score in scores if score is not None])

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
            raise ConfigError(
                f"rank() needs a model with one label, but this one has {self.config.num_labels}.",
                hint="Use predict(), or a cross-encoder with one label.",
                num_labels=self.config.num_labels,
            )
        scores = self.predict([(query, document) for document in documents], batch_size=batch_size)
        best = scores.argsort(descending=True)[:top_k].tolist()
        rows = [{"corpus_id": index, "score": float(scores[index])} for index in best]
        return [{**row, "text": documents[row["corpus_id"]]} for row in rows] if return_documents else rows
