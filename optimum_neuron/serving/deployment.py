"""Models and the endpoints that they answer, independent of HTTP: the object that a web server or Ray holds.

    deployment = Deployment(model_specs(("smollm2",), ServeOptions(), {}), ServeOptions())
    deployment.start()
    answer = await deployment.answer("/v1/chat/completions", {"model": "smollm2", "messages": [...]}, Call())

An answer is plain data, a text (subtitles), or an asynchronous iterator of plain data for a stream. Errors are those
of `errors.py`; `problems.py` gives them OpenAI's form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from ..errors import RequestError, nearest
from .answers import Call, Event
from .chat import chat
from .completions import complete, tokenized
from .conversation import template_ids
from .generator import Generator
from .metrics import Metrics
from .models import Registry, ServedModel
from .options import ModelSpec, ServeOptions, require_cores
from .protocol import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    ImageRequest,
    Request,
    RerankRequest,
    ResponsesRequest,
    ScoreRequest,
    TokenizeRequest,
    TranscriptionRequest,
    TranslationRequest,
    parse,
)
from .response_store import ResponseStore
from .responses import respond
from .runners import Embedder, Painter, Scorer, Transcriber, draw, embed, rerank, score, transcribe
from .sampling import sampling_defaults

Answer = dict[str, Any] | str | AsyncIterator[Event]
Kinds = type | tuple[type, ...]


class Deployment:
    """Loads models, and answers requests for them.

    Each model has `num_replicas` replicas on separate cores. A request goes to the replica with the fewest requests.
    """

    def __init__(self, specs: Iterable[ModelSpec], options: ServeOptions, *, num_replicas: int = 1) -> None:
        specs = list(specs)
        for spec in specs:
            require_cores(spec, num_replicas)
        self.options, self.metrics = options, Metrics()
        self.registry = Registry(
            ServedModel(spec, options.max_queue_size, self.metrics.note_finished, num_replicas) for spec in specs
        )
        self.metrics.watch(self.registry)
        self.responses = ResponseStore(options.response_store_bytes)
        self.is_draining = False

    def start(self) -> None:
        """Begin to load the models."""
        self.registry.start()

    def close(self) -> None:
        """Answer what runs, and give the cores back."""
        self.is_draining = True
        self.registry.close(self.options.drain_timeout_s)

    async def answer(self, endpoint: str, body: object, call: Call) -> Answer:
        """Answer the body of a request to an endpoint."""
        if endpoint not in ENDPOINTS:
            message = f"There is no endpoint {endpoint}{nearest(endpoint, ENDPOINTS) or '.'}"
            raise RequestError(message, hint=f"Use {', '.join(ENDPOINTS)}.", status=404)
        if self.is_draining:
            raise RequestError("The server is stopping.", hint="Send the request again.", status=503)
        kind, request, function = ENDPOINTS[endpoint]
        checked = parse(request, body)
        name, backend, adapter = self.registry.find(checked.model, kind, endpoint)
        call = dataclasses.replace(call, responses=self.responses)
        return await function(backend, checked, call, name=name, adapter=adapter)

    def models(self) -> dict[str, Any]:
        """Return the list of `/v1/models`."""
        return {"object": "list", "data": [self._card(*row) for row in self.registry.names()]}

    def _card(self, name: str, model: ServedModel, adapter: str | None) -> dict[str, Any]:
        root = model.spec.adapters[adapter] if adapter else model.spec.source
        return {
            "id": name,
            "object": "model",
            "created": model.created,
            "owned_by": "optimum-neuron",
            "root": root,
            "parent": model.spec.name if adapter else None,
            "max_model_len": None if model.backend is None else model.backend.max_length,
            "state": model.state,
            "runner": None if model.runner is None else model.runner.to_dict(),
            "endpoints": [path for path, (kinds, *_) in ENDPOINTS.items() if isinstance(model.backend, kinds)],
            "sampling": (
                sampling_defaults(model.backend.model.generation_config)
                if isinstance(model.backend, Generator)
                else None
            ),
        }

    def health(self) -> tuple[int, dict[str, Any]]:
        """Return the status and the report of `/health`: 200 if every model is ready, else 503 with their progress."""
        models = {model.spec.name: model.progress() for model in self.registry.models}
        states = {report["state"] for report in models.values()}
        status = (
            "draining" if self.is_draining else next((one for one in ("failed", "loading") if one in states), "ready")
        )
        return (200 if status == "ready" else 503), {"status": status, "models": models}


async def _tokenize(generator: Generator, body: TokenizeRequest, call: Call, **named: object) -> dict[str, Any]:
    def work() -> dict[str, Any]:
        if body.messages is not None:
            tools = [tool.model_dump(exclude_none=True) for tool in body.tools or ()]
            ids = template_ids(generator, body, tools or None)
        else:
            adds = body.add_special_tokens is not False
            ids = generator.encode(body.prompt or "", "prompt", add_special_tokens=adds)
        return tokenized(generator, ids, with_texts=body.return_token_strs)

    answer: dict[str, Any] = await generator.run(work, num_bytes=call.num_bytes, timeout_s=call.timeout_s)
    return answer


async def _detokenize(generator: Generator, body: DetokenizeRequest, call: Call, **named: object) -> dict[str, Any]:
    if wrong := [token for token in body.tokens if token >= generator.num_tokens]:
        message = f"{wrong[0]} is no token of the vocabulary of {generator.num_tokens}."
        raise RequestError(message, status=400, param="tokens")
    limits: dict[str, Any] = {"num_bytes": call.num_bytes, "timeout_s": call.timeout_s}
    return {"prompt": await generator.run(generator.tokenizer.decode, body.tokens, **limits)}


Endpoint = tuple[Kinds, type[Request], Callable[..., Awaitable[Answer]]]
"""Kinds of models that answer, the form of the body, and the function that answers."""

_RANKING: dict[str, Endpoint] = {
    **dict.fromkeys(("/score", "/v1/score"), ((Scorer, Embedder), ScoreRequest, score)),
    **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), ((Scorer, Embedder), RerankRequest, rerank)),
}
ENDPOINTS: dict[str, Endpoint] = {
    "/v1/chat/completions": (Generator, ChatRequest, chat),
    "/v1/completions": (Generator, CompletionRequest, complete),
    "/v1/responses": (Generator, ResponsesRequest, respond),
    "/tokenize": (Generator, TokenizeRequest, _tokenize),
    "/detokenize": (Generator, DetokenizeRequest, _detokenize),
    "/v1/embeddings": (Embedder, EmbeddingRequest, embed),
    **_RANKING,
    "/v1/audio/transcriptions": (Transcriber, TranscriptionRequest, transcribe),
    "/v1/audio/translations": (Transcriber, TranslationRequest, transcribe),
    "/v1/images/generations": (Painter, ImageRequest, draw),
}
"""Paths and what answers them."""
