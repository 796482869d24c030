"""Sentence embeddings: a compiled model with the interface of sentence-transformers.

    model = NeuronSentenceTransformer.from_pretrained("sentence-transformers/all-MiniLM-L6-v2", export=True)
    vectors = model.encode(["a cat", "a dog"])

The transformer is compiled; pooling and the modules after it run on the host. The package sentence-transformers is not
needed: `pooling.py` reads its folders. `reranking.py` has cross-encoders, `embedding.py` decoders.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch.nn.functional import normalize
from transformers import BatchEncoding

from ..base.transformers_types import PreTrainedConfig
from ..errors import ConfigError, nearest
from ..exporters import Prepared
from ..options.option import source_options
from ..sources import find_folder
from .checks import check_counts
from .model import load_preprocessor
from .pooling import pooled, read_recipe, transformer_subfolder
from .sentence_modules import Step, build_steps
from .tasks import NeuronModelForFeatureExtraction
from .traced import NeuronTracedModel

_RESULTS = ("token_embeddings", "sentence_embedding")
_TOWERS = {"input_ids": "text_embeds", "pixel_values": "image_embeds"}
"""Input of each tower of CLIP to its output."""


class SentenceFeatures(dict[str, torch.Tensor]):
    """A dictionary whose values are attributes too: `token_embeddings`, `sentence_embedding`, and the inputs."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"The features have no {name!r}{nearest(name, self)}") from None


class NeuronSentenceTransformer(NeuronModelForFeatureExtraction):
    """A compiled sentence-transformers model with `encode` and `similarity`; a call takes and returns features."""

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self.recipe = read_recipe(prepared.source.folder)

    @classmethod
    def from_pretrained(
        cls, model_id: str | Path, config: PreTrainedConfig | None = None, export: bool | None = None, **options: object
    ) -> Self:
        """Load an exported folder, or export a checkpoint.

        Args:
            model_id: folder, Hub model ID, or name in `optimum_neuron.checkpoints`. A transformer in a subfolder, such
                as CLIP's "0_CLIPModel", is detected.
            config: transformers configuration to use instead of the checkpoint's.
            export: True exports a checkpoint, False requires an exported folder, None accepts both.
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
            return NeuronClipSentenceTransformer(prepared)  # type: ignore[return-value]
        return cls(prepared)

    @functools.cached_property
    def _steps(self) -> list[Step]:
        """Functions of vectors after pooling."""
        return build_steps(self.source_folder, self.recipe.modules)

    @functools.cached_property
    def tokenizer(self) -> Any:
        """Tokenizer of the model's folder."""
        return load_preprocessor("AutoTokenizer", self.source_folder)

    @functools.cached_property
    def max_seq_length(self) -> int:
        """Tokens to which a sentence is truncated: the minimum for bucket, tokenizer, and folder."""
        limits = [self.neuron_config.buckets("sequence_length")[-1], self.tokenizer.model_max_length]
        return min([*limits, self.recipe.max_seq_length] if self.recipe.max_seq_length else limits)

    def get_max_seq_length(self) -> int:
        """Return `max_seq_length`."""
        return self.max_seq_length

    def get_embedding_dimension(self) -> int:
        """Return the length of a vector."""
        width = int(self.config.hidden_size) * len(self.recipe.pooling)
        with torch.no_grad():
            for step in self._steps:
                width = step(torch.zeros(1, width)).shape[-1]
        return min(width, self.recipe.truncate_dim or width)

    get_sentence_embedding_dimension = get_embedding_dimension  # its name before sentence-transformers 6

    @property
    def prompts(self) -> dict[str, str]:
        """Texts to put before a sentence, by name."""
        return self.recipe.prompts

    @property
    def default_prompt_name(self) -> str | None:
        """Name of the prompt to use if a call names none."""
        return self.recipe.default_prompt_name

    @property
    def similarity_fn_name(self) -> str:
        """Measure of `similarity`: cosine, dot, euclidean, or manhattan."""
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
            sentences: one sentence or several; one sentence returns one vector.
            prompt_name: prompt of the model's folder to put before each sentence; None takes the folder's default.
            prompt: text to put before each sentence.
            batch_size: sentences to tokenize together, sorted by length.
            convert_to_numpy: return an array; False returns a list of tensors.
            convert_to_tensor: return one tensor.
            normalize_embeddings: scale vectors to length 1.
            truncate_dim: length to which vectors are truncated, before `normalize_embeddings`; None takes the
                folder's.
            precision: "float32" or None; use `sentence_transformers.quantize_embeddings` to quantize vectors.
            show_progress_bar: show progress on stderr.
            device: must be the CPU, where inputs are, or "neuron".

        Raises:
            ConfigError: there are no sentences, no such prompt, or a number, device, or precision is not supported.
        """
        if device is not None:
            self.to(device)
        if precision not in (None, "float32"):
            message = f"precision={precision!r} is not supported: encode() returns float32."
            hint = f"Call sentence_transformers.quantize_embeddings(vectors, {precision!r})."
            raise ConfigError(message, hint=hint, option="precision", value=precision)
        check_counts(batch_size=batch_size, **({} if truncate_dim is None else {"truncate_dim": truncate_dim}))
        truncate_dim = self.recipe.truncate_dim if truncate_dim is None else truncate_dim
        is_one = self._is_sentence(sentences)
        items = [sentences] if is_one else list(() if sentences is None else sentences)
        if not items or not all(map(self._is_sentence, items)):
            message = f"encode() takes one or more texts, not a {type(sentences).__name__} of {len(items)}."
            raise ConfigError(message, hint="Pass a string or a list of strings.", argument="sentences")
        before = self.recipe.text_before(prompt_name, prompt)
        num_skipped = self.num_skipped(before)
        texts = [before + text if isinstance(text, str) else text for text in items]
        vectors = in_batches(
            lambda batch: self._embedded(batch, num_skipped)[:, :truncate_dim],
            texts,
            length=lambda text: len(text) if isinstance(text, str) else 0,
            batch_size=batch_size,
            show_progress=bool(show_progress_bar),
        )
        vectors = normalize(vectors, dim=-1) if normalize_embeddings else vectors
        vectors = vectors[0] if is_one else vectors
        if convert_to_tensor:
            return vectors
        return vectors.numpy() if convert_to_numpy else list(vectors)

    def _is_sentence(self, value: object) -> bool:
        """Return whether a value is one sentence for `encode`."""
        return isinstance(value, str)

    def num_skipped(self, prompt: str) -> int:
        """Return how many first tokens a prompt has that are not pooled, without the special token that ends a text."""
        if self.recipe.include_prompt or not prompt:
            return 0
        ids = self.tokenize(prompt)["input_ids"][0]
        return len(ids) - int(int(ids[-1]) in self.tokenizer.all_special_ids)

    def _embedded(self, texts: Sequence[Any], num_skipped: int = 0) -> torch.Tensor:
        """Return the vectors of a batch of sentences, without so many first tokens."""
        vectors: torch.Tensor = self({**self.tokenize(texts), "prompt_length": num_skipped}).sentence_embedding
        return vectors

    def encode_query(self, sentences: str | Sequence[str], **options: object) -> Any:
        """Call `encode` with the folder's prompt "query", if it has one and the call names no other."""
        return self.encode(sentences, **self._with_prompt(("query",), options))

    def encode_document(self, sentences: str | Sequence[str], **options: object) -> Any:
        """Call `encode` with the folder's prompt "document", "passage", or "corpus", as `encode_query` does."""
        return self.encode(sentences, **self._with_prompt(("document", "passage", "corpus"), options))

    def _with_prompt(self, names: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
        name = next((name for name in names if name in self.recipe.prompts), None)
        is_named = options.get("prompt") is not None or options.get("prompt_name") is not None
        return options if is_named or name is None else {**options, "prompt_name": name}

    def tokenize(self, texts: str | Sequence[str], return_tensors: str = "pt") -> BatchEncoding:
        """Return features of texts, padded token IDs and their mask, as items and attributes.

        Args:
            texts: one text or several; one is a batch of one.
            return_tensors: tensor type, as for tokenizers; the model takes "pt".
        """
        listed = [texts] if isinstance(texts, str) else list(texts)
        lower = [text.lower() for text in listed] if self.recipe.do_lower_case else listed
        features: BatchEncoding = self.tokenizer(
            lower, padding=True, truncation=True, max_length=self.max_seq_length, return_tensors=return_tensors
        )
        for name in features.keys() - set(self.signature.names):
            del features[name]
        return features

    def forward(  # type: ignore[override]
        self, features: Mapping[str, torch.Tensor] | None = None, **inputs: object
    ) -> SentenceFeatures:
        """Add `token_embeddings` and `sentence_embedding` to features, as the modules of sentence-transformers do.

        Args:
            features: result of `tokenize`; `prompt_length` may say how many first tokens are a prompt, which folders
                with `include_prompt=false` do not pool.
            **inputs: features by name.

        Returns:
            A dictionary of tensors, which are attributes too.
        """
        given = {**(features or {}), **inputs}
        features = {name: value for name, value in given.items() if name not in _RESULTS}  # of an earlier call
        num_skipped = int(features.pop("prompt_length", 0))
        num_skipped = 0 if self.recipe.include_prompt else num_skipped
        hidden_BTD = super().forward(**features).last_hidden_state
        mask_BT = features.get("attention_mask", torch.ones(hidden_BTD.shape[:2]))
        vectors = pooled(hidden_BTD, mask_BT, self.recipe.pooling, num_skipped)
        for step in self._steps:
            vectors = step(vectors)
        return SentenceFeatures(features, token_embeddings=hidden_BTD, sentence_embedding=vectors)

    def similarity(self, left: object, right: object) -> torch.Tensor:
        """Return the similarity of each vector in `left` with each in `right`, by the folder's measure."""
        left_AD, right_BD = (torch.atleast_2d(torch.as_tensor(vectors)) for vectors in (left, right))
        measure = self.recipe.similarity
        if measure in ("euclidean", "manhattan"):
            return -torch.cdist(left_AD, right_BD, p=2.0 if measure == "euclidean" else 1.0)
        if measure == "cosine":
            left_AD, right_BD = normalize(left_AD, dim=-1), normalize(right_BD, dim=-1)
        return left_AD @ right_BD.T

    def similarity_pairwise(self, left: object, right: object) -> torch.Tensor:
        """Return the similarity of each vector in `left` with the one at its position in `right`."""
        left_AD, right_AD = (torch.atleast_2d(torch.as_tensor(vectors)) for vectors in (left, right))
        rows = zip(left_AD, right_AD, strict=True)
        return torch.cat([self.similarity(one, other)[0] for one, other in rows])


class NeuronClipSentenceTransformer(NeuronSentenceTransformer):
    """A compiled CLIP: `encode` takes texts and PIL images, in any order.

    The graph has both towers, so a batch of texts only runs with a blank image, and a batch of images only with an
    empty text. Vectors have the direction of sentence-transformers' vectors, and length 1.
    """

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self._blank = {
            "input_ids": torch.zeros(1, 1, dtype=torch.int64),
            "pixel_values": torch.zeros(
                1, *(self.neuron_config.buckets(axis)[0] for axis in ("num_channels", "height", "width"))
            ),
        }

    @functools.cached_property
    def processor(self) -> Any:
        """Image processor of the model's folder."""
        return load_preprocessor("AutoImageProcessor", self.source_folder)

    def get_sentence_embedding_dimension(self) -> int:
        """Return the length of a vector."""
        return int(self.config.projection_dim)

    def forward(  # type: ignore[override]
        self, features: Mapping[str, torch.Tensor] | None = None, **inputs: object
    ) -> SentenceFeatures:
        """Add `text_embeds`, `image_embeds`, and `sentence_embedding` to features.

        Args:
            features: `input_ids` with `attention_mask`, `pixel_values`, or both, of any batch sizes.
            **inputs: features by name.

        Returns:
            A dictionary of tensors, which are attributes too; `sentence_embedding` has texts first.
        """
        features = {name: tensor for name, tensor in {**(features or {}), **inputs}.items() if tensor is not None}
        towers = [name for name in _TOWERS if name in features]
        output = NeuronTracedModel.forward(self, **{**self._blank, **features} if towers else features)
        vectors = {_TOWERS[name]: output[_TOWERS[name]] for name in towers}
        return SentenceFeatures(features, **vectors, sentence_embedding=torch.cat(list(vectors.values())))

    def _is_sentence(self, value: object) -> bool:
        from PIL.Image import Image

        return isinstance(value, (str, Image))

    def _embedded(self, texts: Sequence[Any], num_skipped: int = 0) -> torch.Tensor:
        words = [item for item in texts if isinstance(item, str)]
        images = [item for item in texts if not isinstance(item, str)]
        features = dict(self.tokenize(words)) if words else {}
        if images:
            features["pixel_values"] = self.processor(images, return_tensors="pt")["pixel_values"]
        vectors = self(features).sentence_embedding
        # Texts come first: restore the order of the arguments.
        order = sorted(range(len(texts)), key=lambda index: not isinstance(texts[index], str))
        return vectors[torch.tensor(order).argsort()]


def in_batches(
    call: Callable[[list[Any]], torch.Tensor],
    items: Sequence[Any],
    *,
    length: Callable[[Any], int],
    batch_size: int,
    show_progress: bool = False,
) -> torch.Tensor:
    """Call a function on batches of items, longest first, and return its rows in the order of the items."""
    from tqdm import tqdm

    order = sorted(range(len(items)), key=lambda index: -length(items[index]))
    starts = tqdm(range(0, len(order), batch_size), desc="Batches", disable=not show_progress)
    parts = [call([items[index] for index in order[start : start + batch_size]]) for start in starts]
    return torch.cat(parts)[torch.tensor(order).argsort()]
