"""`SentenceFeatures`: tensors of a batch of sentences by name, as modules of sentence-transformers exchange them.

features = model(model.tokenize(["a cat"]))
features["sentence_embedding"] is features.sentence_embedding
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import nearest


class SentenceFeatures(dict[str, torch.Tensor]):
    """A dictionary whose values are attributes too: `token_embeddings`, `sentence_embedding`, and the inputs."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"The features have no {name!r}{nearest(name, self)}") from None
