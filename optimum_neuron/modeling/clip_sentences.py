"""`NeuronClipSentenceTransformer`: embeddings of texts and images by CLIP, as in sentence-transformers.

`NeuronSentenceTransformer.from_pretrained` returns it. The compiled graph has both towers, so a batch of texts only
runs with a blank image, and a batch of images only with an empty text. Vectors have the direction of
sentence-transformers' vectors, and length 1.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..exporters import Prepared
from .facts import load_preprocessor
from .sentences import NeuronSentenceTransformer, SentenceFeatures
from .traced import NeuronTracedModel

_VECTORS = {"input_ids": "text_embeds", "pixel_values": "image_embeds"}
"""Input of each tower to its output."""


class NeuronClipSentenceTransformer(NeuronSentenceTransformer):
    """A compiled CLIP: `encode` takes texts and PIL images, in any order."""

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
        self, features: Mapping[str, torch.Tensor] | None = None, **inputs: Any
    ) -> SentenceFeatures:
        """Add `text_embeds`, `image_embeds`, and `sentence_embedding` to features.

        Args:
            features: `input_ids` with `attention_mask`, `pixel_values`, or both, of any batch sizes.
            **inputs: features by name.

        Returns:
            A dictionary of tensors, which are attributes too; `sentence_embedding` has texts first.
        """
        features = {name: tensor for name, tensor in {**(features or {}), **inputs}.items() if tensor is not None}
        towers = [name for name in _VECTORS if name in features]
        output = NeuronTracedModel.forward(self, **{**self._blank, **features} if towers else features)
        vectors = {_VECTORS[name]: output[_VECTORS[name]] for name in towers}
        return SentenceFeatures(features, **vectors, sentence_embedding=torch.cat(list(vectors.values())))

    def _is_sentence(self, value: Any) -> bool:
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
