"""Sentences as vectors, and documents ranked for a query: compiled models with the interface of sentence-transformers.

    model = NeuronSentenceTransformer.from_pretrained("sentence-transformers/all-MiniLM-L6-v2", export=True)
    vectors = model.encode(["a cat", "a dog"])

The transformer is compiled; pooling and normalization are a few operations on its result. The package
sentence-transformers is not needed, its folders are read (`pooling.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..errors import ConfigError, ModelError, refusal
from ..exporters.prepare import Prepared
from .pooling import normalized, pooled, read_recipe
from .tasks import NeuronModelForFeatureExtraction, NeuronModelForSequenceClassification
from .traced import NeuronTracedModel


class NeuronSentenceTransformer(NeuronModelForFeatureExtraction):
    """A compiled sentence-transformers model: `encode`, `similarity`, and a call that takes and returns features."""

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self.recipe = read_recipe(prepared.source.folder)

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The model's own tokenizer."""
        return _tokenizer(self)

    @functools.cached_property
    def max_seq_length(self) -> int:
        """Tokens of a sentence; more are cut off. The least that bucket, tokenizer and folder allow."""
        asked = self.recipe.max_seq_length
        limits = [self.neuron_config.buckets("sequence_length")[-1], self.tokenizer.model_max_length]
        return min([*limits, asked] if asked else limits)

    def get_sentence_embedding_dimension(self) -> int:
        """Numbers of a vector."""
        return self.config.hidden_size * len(self.recipe.pooling)

    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
        show_progress_bar: bool = False,
    ) -> Any:
        """Return a vector for each sentence, in the order of the sentences.

        Args:
            sentences: one sentence or several; one gives one vector.
            prompt_name: a prompt of the model's folder to put before each sentence; None takes the folder's default.
            prompt: text to put before each sentence.
            batch_size: sentences that are tokenized together; sentences of similar length are.
            convert_to_numpy: return an array; False returns a list of tensors.
            convert_to_tensor: return one tensor.
            normalize_embeddings: scale vectors to length 1, where the model does not itself.
            show_progress_bar: show progress on stderr.

        Raises:
            ConfigError: there are no sentences, or no such prompt.
        """
        given = [sentences] if isinstance(sentences, str) else list(() if sentences is None else sentences)
        if not given or not all(isinstance(text, str) for text in given):
            raise ConfigError(
                refusal(
                    asked=f"encode({type(sentences).__name__} of {len(given)})",
                    found="not one or more texts",
                    why="each text becomes a vector",
                    do="pass a string or a list of strings",
                )
            )
        texts = [self._prompt(prompt_name, prompt) + text for text in given]
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        vectors: list[torch.Tensor | None] = [None] * len(texts)
        for indices in _progress(_chunks(order, batch_size), len(order) / batch_size, show_progress_bar):
            found = self(self.tokenize([texts[index] for index in indices]))["sentence_embedding"]
            found = normalized(found) if normalize_embeddings else found
            for index, vector in zip(indices, found, strict=True):
                vectors[index] = vector
        stacked = torch.stack([vector for vector in vectors if vector is not None])
        stacked = stacked[0] if isinstance(sentences, str) else stacked
        if convert_to_tensor:
            return stacked
        return stacked.numpy() if convert_to_numpy else list(stacked)

    def tokenize(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Features of texts: padded token ids and their mask."""
        lower = [text.lower() for text in texts] if self.recipe.do_lower_case else list(texts)
        known = {spec.name for spec in self.signature.inputs}
        features = self.tokenizer(
            lower, padding=True, truncation=True, max_length=self.max_seq_length, return_tensors="pt"
        )
        return {name: tensor for name, tensor in features.items() if name in known}

    def forward(self, features: dict[str, torch.Tensor] | None = None, **inputs: Any) -> Any:  # type: ignore[override]
        """Add `token_embeddings` and `sentence_embedding` to features, as the modules of sentence-transformers do."""
        given = {**(features or {}), **inputs}
        hidden_BTD = super().forward(**given).last_hidden_state
        mask_BT = given.get("attention_mask", torch.ones(hidden_BTD.shape[:2]))
        vectors = pooled(hidden_BTD, mask_BT, self.recipe.pooling)
        vectors = normalized(vectors) if self.recipe.normalize else vectors
        return {**given, "token_embeddings": hidden_BTD, "sentence_embedding": vectors}

    def similarity(self, left: Any, right: Any) -> torch.Tensor:
        """Similarity of every vector on the left with every one on the right, by the folder's measure."""
        left_AD, right_BD = (torch.atleast_2d(torch.as_tensor(vectors)) for vectors in (left, right))
        measure = self.recipe.similarity
        if measure in ("euclidean", "manhattan"):
            return -torch.cdist(left_AD, right_BD, p=2.0 if measure == "euclidean" else 1.0)
        if measure == "cosine":
            left_AD, right_BD = normalized(left_AD), normalized(right_BD)
        return left_AD @ right_BD.T

    def _prompt(self, name: str | None, prompt: str | None) -> str:
        if prompt is not None:
            return prompt
        name = self.recipe.default_prompt_name if name is None else name
        if name is not None and name not in self.recipe.prompts:
            raise ConfigError(
                refusal(
                    asked=f"prompt_name={name!r}",
                    found=f"the model has {', '.join(map(repr, self.recipe.prompts)) or 'no prompts'}",
                    why="prompts are in the model's folder",
                    do="name one of them, or pass prompt=",
                )
            )
        return "" if name is None else self.recipe.prompts[name]


class NeuronModelForTextReranking(NeuronModelForSequenceClassification):
    """A compiled cross-encoder: how well each document answers a query."""

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The model's own tokenizer."""
        return _tokenizer(self)

    def predict(self, pairs: Sequence[Sequence[str]], *, batch_size: int = 32) -> torch.Tensor:
        """Return a score for each pair of texts: of one label its probability, of several their logits.

        Raises:
            ConfigError: there are no pairs.
        """
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
        for indices in _chunks(order, batch_size):
            left, right = zip(*(pairs[index] for index in indices), strict=True)
            features = self.tokenizer(
                list(left), list(right), padding=True, truncation=True, max_length=length, return_tensors="pt"
            )
            logits = self(**{name: tensor for name, tensor in features.items() if name in known}).logits
            for index, row in zip(indices, logits, strict=True):
                scores[index] = row[0].sigmoid() if len(row) == 1 else row
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


def _chunks(order: list[int], size: int) -> Iterator[list[int]]:
    for begin in range(0, len(order), size):
        yield order[begin : begin + size]


def _progress(chunks: Iterator[list[int]], total: float, show: bool) -> Iterator[list[int]]:
    from tqdm import tqdm

    return iter(tqdm(chunks, total=-int(-total // 1), desc="Batches", disable=not show))


def _tokenizer(model: NeuronTracedModel) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model.source_folder)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            refusal(
                asked=f"the tokenizer of {model.source_folder}",
                found=" ".join(str(error).split())[:300],
                why="texts become tokens first",
                do="add the tokenizer's files to the folder",
            )
        ) from error
