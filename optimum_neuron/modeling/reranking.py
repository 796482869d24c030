"""Documents ranked for a query: a compiled cross-encoder with the interface of sentence-transformers.

ranker = NeuronModelForTextReranking.from_pretrained("cross-encoder/ms-marco-MiniLM-L6-v2", export=True)
ranker.rank("which pet?", ["a cat", "a stone"])
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from ..core import Choice
from ..errors import ConfigError, ModelError, refusal
from ..sizes import count_error, is_count
from .facts import load_preprocessor
from .sentences import chunks
from .tasks import NeuronModelForSequenceClassification


class NeuronModelForTextReranking(NeuronModelForSequenceClassification):
    """A compiled cross-encoder: how well each document answers a query."""

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The model's own tokenizer."""
        return load_preprocessor("AutoTokenizer", self.source_folder)

    @functools.cached_property
    def activation(self) -> Choice[str]:
        """What makes a score of the logit of one label, "sigmoid" or "identity", as the model's configuration says.

        Raises:
            ModelError: it says something else.
        """
        saved = getattr(self.config, "sentence_transformers", None) or {}
        named = saved.get("activation_fn") or getattr(self.config, "sbert_ce_default_activation_function", None)
        name = "sigmoid" if named is None else named.rpartition(".")[2].lower()
        if name not in ("sigmoid", "identity"):
            raise ModelError(
                refusal(
                    asked=f"scores of {self.source_folder}",
                    found=f"config.json names the activation {named}",
                    why="Sigmoid and Identity are implemented",
                    do="call the model, and compute scores from its logits",
                )
            )
        return Choice(value=name, reason="config.json says nothing" if named is None else f"config.json names {named}")

    def predict(self, pairs: Sequence[Sequence[str]], *, batch_size: int = 32) -> torch.Tensor:
        """Return a score for each pair of texts: of one label as `activation` says, of several their logits.

        Raises:
            ConfigError: there are no pairs, or `batch_size` is no number of at least 1.
            ModelError: the model's configuration names an activation that is not implemented.
        """
        if not is_count(batch_size):
            raise count_error("batch_size", batch_size)
        if not len(pairs) or any(isinstance(pair, str) or len(pair) != 2 for pair in pairs):
            raise ConfigError(
                refusal(
                    asked=f"predict of {len(pairs)} pairs",
                    found="not one or more pairs of texts",
                    why="a cross-encoder reads two texts together",
                    do="pass [(query, document), ...]",
                )
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
                refusal(
                    asked="rank",
                    found=f"a model of {self.config.num_labels} labels",
                    why="documents are ranked by one score",
                    do="use predict, or a cross-encoder with one label",
                )
            )
        scores = self.predict([(query, document) for document in documents], batch_size=batch_size)
        best = scores.argsort(descending=True)[:top_k].tolist()
        found = [{"corpus_id": index, "score": float(scores[index])} for index in best]
        return [{**row, "text": documents[row["corpus_id"]]} for row in found] if return_documents else found
