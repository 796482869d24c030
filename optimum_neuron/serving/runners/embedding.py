"""`/v1/embeddings`: vectors of texts, by a model with the interface of sentence-transformers."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import normalize

from ...base.model_facts import facts_of
from ...errors import RequestError
from ..answers import Call
from ..protocol import EmbeddingRequest
from .base import Features, TextModel
from .batcher import IsWanted

if TYPE_CHECKING:
    from ..served import Served


_NUM_SKIPPED = "prompt_length"
"""Feature of texts whose first tokens are not pooled."""


class Embedder(TextModel):
    """A model that makes vectors of texts."""

    def __init__(self, model: Any, served: Served) -> None:
        super().__init__(model, served)
        self.max_length = model.max_seq_length
        self.num_tokens = model.config.get_text_config().vocab_size
        self._before: str = model.recipe.text_before(None, None)
        self._num_skipped: int = model.num_skipped(self._before)

    def features(self, text: str | Sequence[int], body: Any) -> Features:
        """Return the features of a text or of its tokens; tokens are taken as they are, as in vLLM."""
        if isinstance(text, str):
            whole = self._before + text
            features = self._tokenized(body, whole.lower() if self.model.recipe.do_lower_case else whole)
            return features | ({_NUM_SKIPPED: [self._num_skipped]} if self._num_skipped else {})
        if wrong := [token for token in text if token >= self.num_tokens]:
            message = f"The input has {wrong[0]}, but the vocabulary has {self.num_tokens} tokens."
            raise RequestError(message, hint="Send token ids of the model.", status=400, param="input")
        limit = body.truncate_prompt_tokens
        ids = list(text) if limit is None else list(text)[: self.max_length if limit == -1 else limit]
        constants = {"input_ids": ids, "attention_mask": [1] * len(ids), "token_type_ids": [0] * len(ids)}
        return self._checked({k: v for k, v in constants.items() if k in self.model.signature.names}, body)

    def _batch_key(self, item: Features) -> int:
        return item.get(_NUM_SKIPPED, [0])[0]

    def _compute(self, items: list[Features], is_wanted: IsWanted) -> list[torch.Tensor]:
        rows = [{name: row for name, row in item.items() if name != _NUM_SKIPPED} for item in items]
        features = self.padded(rows) | {_NUM_SKIPPED: self._batch_key(items[0])}
        with torch.inference_mode():
            return list(self.model(features).sentence_embedding.float())

    def dimensions(self, wanted: int | None) -> int | None:
        """Return the length of vectors that a body wants."""
        size = self.model.get_embedding_dimension()
        if wanted in (None, size):
            return None
        listed = facts_of(self.model.config).matryoshka_dimensions
        if listed is None and not facts_of(self.model.config).is_matryoshka:
            message = f"dimensions={wanted} is not supported: the model's vectors have {size} numbers."
            hint = "Remove dimensions, or set matryoshka_dimensions in the model's config.json."
            raise RequestError(message, hint=hint, status=400, param="dimensions")
        if wanted > size or (listed is not None and wanted not in listed):
            shown = f"one of {', '.join(map(str, listed))}" if listed else f"at most {size}"
            message = f"dimensions={wanted} is not supported; the model's vectors can have {shown}."
            raise RequestError(message, status=400, param="dimensions", dimensions=listed)
        return wanted


async def embed(
    model: Embedder, body: EmbeddingRequest, call: Call, *, name: str, adapter: str | None = None
) -> dict[str, Any]:
    """Return the answer to a body."""
    size = model.dimensions(body.dimensions)
    items = await model.features_of(body.inputs, body)
    num_tokens = sum(len(item["input_ids"]) for item in items)
    call = call.within(body.timeout_s)
    vectors = await model.compute(items, call, priority=body.priority, num_prompt=num_tokens)
    if size is not None:
        vectors = [normalize(vector[:size], dim=-1) for vector in vectors]
    data = [
        {"object": "embedding", "index": index, "embedding": _written(vector, body.encoding_format)}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return {"object": "list", "data": data, "model": name, "usage": usage}


def _written(vector: torch.Tensor, encoding: str) -> str | list[float]:
    """Numbers, or base64 of little-endian float32."""
    if encoding == "float":
        return vector.tolist()
    return base64.b64encode(vector.numpy().astype("<f4").tobytes()).decode()
