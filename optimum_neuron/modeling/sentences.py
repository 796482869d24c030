"""Sentences as vectors: a compiled model with the interface of sentence-transformers.

    model = NeuronSentenceTransformer.from_pretrained("sentence-transformers/all-MiniLM-L6-v2", export=True)
    vectors = model.encode(["a cat", "a dog"])

The transformer is compiled; pooling and normalization are a few operations on its result. The package
sentence-transformers is not needed, its folders are read (`pooling.py`). `reranking.py` has cross-encoders,
`embedding.py` decoders, `clip_sentences.py` CLIP.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import torch

from ..errors import ConfigError, refusal
from ..exporters.prepare import Prepared
from ..exporters.source import find_folder
from ..options import source_options
from ..sizes import count_error, is_count, raise_together
from .facts import load_preprocessor
from .features import SentenceFeatures
from .pooling import normalized, pooled, read_recipe, transformer_subfolder
from .tasks import NeuronModelForFeatureExtraction

"""Keywords that say where a model is found."""


class NeuronSentenceTransformer(NeuronModelForFeatureExtraction):
    """A compiled sentence-transformers model: `encode`, `similarity`, and a call that takes and returns features."""

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self.recipe = read_recipe(prepared.source.folder)

    @classmethod
    def from_pretrained(
        cls, model_id: str | Path, config: Any = None, export: bool | None = None, **options: Any
    ) -> Self:
        """Load an exported folder, or export a checkpoint.

        Args:
            model_id: folder, id on the Hub, or name in `optimum_neuron.checkpoints`. A transformer in a folder of its
                own, as CLIP's "0_CLIPModel", is found.
            config: a transformers configuration to use instead of the checkpoint's.
            export: True exports a checkpoint, False requires an exported folder, None does what fits.
            **options: see `NeuronTracedModel.from_pretrained`.

        Raises:
            NeuronError: see `optimum_neuron/errors.py`.
        """
        if isinstance(model_id, (str, Path)) and not options.get("subfolder"):
            options |= transformer_subfolder(find_folder(model_id, **source_options(options)))
        return super().from_pretrained(model_id, config, export, **options)

    @classmethod
    def _wrap(cls, prepared: Prepared) -> Self:
        if cls is NeuronSentenceTransformer and prepared.source.config.model_type == "clip":
            from .clip_sentences import NeuronClipSentenceTransformer

            return NeuronClipSentenceTransformer(prepared)  # type: ignore[return-value]
        return cls(prepared)

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The model's own tokenizer."""
        return load_preprocessor("AutoTokenizer", self.source_folder)

    @functools.cached_property
    def max_seq_length(self) -> int:
        """Tokens of a sentence; more are cut off. The least that bucket, tokenizer and folder allow."""
        asked = self.recipe.max_seq_length
        limits = [self.neuron_config.buckets("sequence_length")[-1], self.tokenizer.model_max_length]
        return min([*limits, asked] if asked else limits)

    def get_embedding_dimension(self) -> int:
        """Numbers of a vector."""
        return self.config.hidden_size * len(self.recipe.pooling)

    get_sentence_embedding_dimension = get_embedding_dimension  # its name before sentence-transformers 6

    @property
    def prompts(self) -> dict[str, str]:
        """Texts that can be put before a sentence, by name."""
        return self.recipe.prompts

    @property
    def default_prompt_name(self) -> str | None:
        """The prompt that is put before a sentence where nothing is said."""
        return self.recipe.default_prompt_name

    @property
    def similarity_fn_name(self) -> str:
        """Measure of `similarity`: cosine, dot, euclidean or manhattan."""
        return self.recipe.similarity

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
        truncate_dim: int | None = None,
        precision: str | None = None,
        show_progress_bar: bool | None = False,
        device: str | torch.device | None = None,
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
            truncate_dim: numbers of a vector to keep, before it is scaled by `normalize_embeddings`.
            precision: "float32" or None; vectors are quantized by `sentence_transformers.quantize_embeddings`.
            show_progress_bar: show progress on stderr.
            device: accepted for the CPU, where inputs are.

        Raises:
            ConfigError: there are no sentences, or no such prompt; a number below 1; another device or precision.
        """
        if device is not None:
            self.to(device)
        if precision not in (None, "float32"):
            raise ConfigError(_no_precision(precision))
        numbers = {"batch_size": batch_size, **({} if truncate_dim is None else {"truncate_dim": truncate_dim})}
        raise_together(count_error(name, number) for name, number in numbers.items() if not is_count(number))
        is_one = self._is_sentence(sentences)
        given = [sentences] if is_one else list(() if sentences is None else sentences)
        if not given or not all(map(self._is_sentence, given)):
            raise ConfigError(
                refusal(
                    asked=f"encode({type(sentences).__name__} of {len(given)})",
                    found="not one or more texts",
                    why="each text becomes a vector",
                    do="pass a string or a list of strings",
                )
            )
        before = self.recipe.text_before(prompt_name, prompt)
        texts = [before + text if isinstance(text, str) else text for text in given]
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]) if isinstance(texts[index], str) else 0)
        vectors: list[torch.Tensor | None] = [None] * len(texts)
        for indices in _progress(chunks(order, batch_size), len(order) / batch_size, bool(show_progress_bar)):
            found = self._embedded([texts[index] for index in indices])[:, :truncate_dim]
            found = normalized(found) if normalize_embeddings else found
            for index, vector in zip(indices, found, strict=True):
                vectors[index] = vector
        stacked = torch.stack([vector for vector in vectors if vector is not None])
        stacked = stacked[0] if is_one else stacked
        if convert_to_tensor:
            return stacked
        return stacked.numpy() if convert_to_numpy else list(stacked)

    def _is_sentence(self, value: Any) -> bool:
        """Whether `encode` makes one vector of a value."""
        return isinstance(value, str)

    def _embedded(self, texts: Sequence[Any]) -> torch.Tensor:
        """Vectors of a batch of what `_is_sentence` accepts."""
        vectors: torch.Tensor = self(self.tokenize(texts)).sentence_embedding
        return vectors

    def encode_query(self, sentences: str | Sequence[str], **options: Any) -> Any:
        """`encode` with the folder's prompt named "query", where it has one and no other is asked for."""
        return self.encode(sentences, **self._with_prompt(("query",), options))

    def encode_document(self, sentences: str | Sequence[str], **options: Any) -> Any:
        """`encode` with the folder's prompt named "document", "passage" or "corpus", likewise."""
        return self.encode(sentences, **self._with_prompt(("document", "passage", "corpus"), options))

    def _with_prompt(self, names: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
        name = next((name for name in names if name in self.recipe.prompts), None)
        is_named = options.get("prompt") is not None or options.get("prompt_name") is not None
        return options if is_named or name is None else {**options, "prompt_name": name}

    def tokenize(self, texts: str | Sequence[str], return_tensors: str = "pt") -> dict[str, Any]:
        """Features of texts: padded token ids and their mask.

        Args:
            texts: one text or several; one is a batch of one.
            return_tensors: kind of tensors, as tokenizers name it; the model takes "pt".
        """
        given = [texts] if isinstance(texts, str) else list(texts)
        lower = [text.lower() for text in given] if self.recipe.do_lower_case else given
        known = {spec.name for spec in self.signature.inputs}
        features = self.tokenizer(
            lower, padding=True, truncation=True, max_length=self.max_seq_length, return_tensors=return_tensors
        )
        return {name: tensor for name, tensor in features.items() if name in known}

    def forward(  # type: ignore[override]
        self, features: dict[str, torch.Tensor] | None = None, **inputs: Any
    ) -> SentenceFeatures:
        """Add `token_embeddings` and `sentence_embedding` to features, as the modules of sentence-transformers do.

        Args:
            features: what `tokenize` returns.
            **inputs: the same by name.

        Returns:
            A dictionary of tensors, which are attributes too.
        """
        given = {**(features or {}), **inputs}
        hidden_BTD = super().forward(**given).last_hidden_state
        mask_BT = given.get("attention_mask", torch.ones(hidden_BTD.shape[:2]))
        vectors = pooled(hidden_BTD, mask_BT, self.recipe.pooling)
        vectors = normalized(vectors) if self.recipe.normalize else vectors
        return SentenceFeatures(given, token_embeddings=hidden_BTD, sentence_embedding=vectors)

    def similarity(self, left: Any, right: Any) -> torch.Tensor:
        """Similarity of every vector on the left with every one on the right, by the folder's measure."""
        left_AD, right_BD = (torch.atleast_2d(torch.as_tensor(vectors)) for vectors in (left, right))
        measure = self.recipe.similarity
        if measure in ("euclidean", "manhattan"):
            return -torch.cdist(left_AD, right_BD, p=2.0 if measure == "euclidean" else 1.0)
        if measure == "cosine":
            left_AD, right_BD = normalized(left_AD), normalized(right_BD)
        return left_AD @ right_BD.T

    def similarity_pairwise(self, left: Any, right: Any) -> torch.Tensor:
        """Similarity of each vector on the left with the one at its place on the right."""
        left_AD, right_AD = (torch.atleast_2d(torch.as_tensor(vectors)) for vectors in (left, right))
        rows = zip(left_AD, right_AD, strict=True)
        return torch.cat([self.similarity(one, other)[0] for one, other in rows])


def _no_precision(asked: Any) -> str:
    do = f"pass the vectors to sentence_transformers.quantize_embeddings(vectors, {asked!r})"
    why = "quantization needs the ranges of all vectors of an index"
    return refusal(asked=f"encode(precision={asked!r})", found="vectors in float32", why=why, do=do)


def chunks(order: list[int], size: int) -> Iterator[list[int]]:
    """Parts of a list, of at most so many elements."""
    for begin in range(0, len(order), size):
        yield order[begin : begin + size]


def _progress(parts: Iterator[list[int]], total: float, show: bool) -> Iterator[list[int]]:
    from tqdm import tqdm

    return iter(tqdm(parts, total=-int(-total // 1), desc="Batches", disable=not show))
