"""`/score` and `/rerank`: how well texts fit each other, by a cross-encoder or by the cosine of embeddings.

Bodies and answers are those of vLLM, Jina, and Cohere.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...errors import RequestError
from ..answers import Call
from ..protocol import RerankRequest, ScoreRequest, TextRequest
from .base import Features, TextModel
from .batcher import IsWanted
from .embedding import Embedder

if TYPE_CHECKING:
    from ..served import Served


class Scorer(TextModel):
    """A cross-encoder."""

    def __init__(self, model: Any, served: Served) -> None:
        super().__init__(model, served)
        self.max_length = min(model.neuron_config.buckets("sequence_length")[-1], self.tokenizer.model_max_length)

    def features(self, pair: tuple[str, str], body: TextRequest) -> Features:
        """Return the features of a pair."""
        return self._tokenized(body, *pair)

    def _compute(self, items: list[Features], is_wanted: IsWanted) -> list[float]:
        with torch.inference_mode():
            logits = self.model(**self.padded(items)).logits[:, 0].float()
        scores: list[float] = (logits.sigmoid() if self.model.activation.value == "sigmoid" else logits).tolist()
        return scores


async def pair_scores(
    model: Scorer | Embedder, pairs: Sequence[tuple[str, str]], body: TextRequest, call: Call
) -> tuple[list[float], int]:
    """Return a score of each pair, and the number of tokens."""
    call = call.within(body.timeout_s)
    compute = functools.partial(model.compute, call=call, priority=body.priority)
    if isinstance(model, Scorer):
        items = await model.features_of(pairs, body)
        num_tokens = sum(len(item["input_ids"]) for item in items)
        return await compute(items, num_prompt=num_tokens), num_tokens
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))  # a query is embedded once
    items = await model.features_of(texts, body)
    num_tokens = sum(len(item["input_ids"]) for item in items)
    vectors = dict(zip(texts, await compute(items, num_prompt=num_tokens), strict=True))
    return [float(torch.cosine_similarity(vectors[a], vectors[b], dim=-1)) for a, b in pairs], num_tokens


async def score(
    model: Scorer | Embedder, body: ScoreRequest, call: Call, *, name: str, adapter: str | None = None
) -> dict[str, Any]:
    """Return the answer to a body of `/score`."""
    left, right = body.lefts, body.rights
    if len(left) == 1:
        left = left * len(right)
    if len(left) != len(right):
        message = f"text_1 has {len(left)} texts, text_2 {len(right)}."
        raise RequestError(message, hint="Send as many, or one in text_1.", status=400, param="text_2")
    scores, num_tokens = await pair_scores(model, list(zip(left, right, strict=True)), body, call)
    return {
        "id": f"score-{call.request_id}",
        "object": "list",
        "created": call.created,
        "model": name,
        "data": [{"index": index, "object": "score", "score": value} for index, value in enumerate(scores)],
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }


async def rerank(
    model: Scorer | Embedder, body: RerankRequest, call: Call, *, name: str, adapter: str | None = None
) -> dict[str, Any]:
    """Return the answer to a body of `/rerank`: documents by their score, best first."""
    texts = body.texts
    scores, num_tokens = await pair_scores(model, [(body.query, text) for text in texts], body, call)
    best = sorted(range(len(texts)), key=lambda index: -scores[index])[: body.top_n or None]
    results = [
        {"index": index, "relevance_score": scores[index]}
        | ({"document": {"text": texts[index]}} if body.return_documents else {})
        for index in best
    ]
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return {"id": f"rerank-{call.request_id}", "model": name, "results": results, "usage": usage}
