"""The web application: paths of OpenAI, vLLM, and SageMaker, around a `Deployment`.

    app = make_app(deployment)
    uvicorn.run(app)

It writes answers and streams, and cancels what a client no longer waits for. `gate.py` checks keys and sizes before,
`bodies.py` reads bodies, `problems.py` writes errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ..errors import RequestError
from ..version import __version__
from .answers import Call
from .bodies import read_body
from .deployment import ENDPOINTS, Deployment
from .gate import Gate
from .problems import RETRY_AFTER_S, body_of, problem_of, too_slow

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Makes JSON; `json.dumps` would make an encoder for each token."""

_PAGE = Path(__file__).with_name("page.html")


def make_app(deployment: Deployment) -> FastAPI:
    """Return the application of a deployment; the application starts and closes it."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        deployment.start()
        yield
        await asyncio.to_thread(deployment.close)

    app = FastAPI(title="Optimum Neuron (simulated)", version=__version__, lifespan=lifespan)
    app.state.deployment = deployment
    for path, (_, request, _) in ENDPOINTS.items():
        _add_endpoint(app, deployment, path, request)
    _add_facts(app, deployment)
    _add_sagemaker(app, deployment)
    app.add_exception_handler(HTTPException, _write_http_problem)
    options = deployment.options
    app.add_middleware(Gate, options=options, metrics=deployment.metrics)
    if options.allowed_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(options.allowed_origins), allow_methods=["*"], allow_headers=["*"]
        )
    return app


def _add_endpoint(app: FastAPI, deployment: Deployment, path: str, kind: Any) -> None:
    async def handle(request: Request) -> Response:
        return await _answer(deployment, path, request)

    content = {"application/json": {"schema": kind.model_json_schema(ref_template=f"#/x-bodies/{path}/{{model}}")}}
    app.add_api_route(path, handle, methods=["POST"], openapi_extra={"requestBody": {"content": content}})


def _add_facts(app: FastAPI, deployment: Deployment) -> None:
    @app.get("/health")
    async def health() -> Response:
        status, report = deployment.health()
        return JSONResponse(report, status_code=status, headers=_retry(status))

    @app.get("/v1/models")
    async def models() -> Response:
        return JSONResponse(deployment.models())

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        cards = {card["id"]: card for card in deployment.models()["data"]}
        if name not in cards:
            message = f"The model {name!r} does not exist."
            return JSONResponse(body_of(404, message, param="model", code="model_not_found"), status_code=404)
        return JSONResponse(cards[name])

    @app.get("/v1/responses/{response_id}")
    async def response(response_id: str) -> Response:
        try:
            return JSONResponse(deployment.responses.get(response_id).response)
        except RequestError as error:
            return _problem(error)

    @app.delete("/v1/responses/{response_id}")
    async def forget(response_id: str) -> Response:
        try:
            deployment.responses.delete(response_id)
        except RequestError as error:
            return _problem(error)
        return JSONResponse({"id": response_id, "object": "response.deleted", "deleted": True})

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(deployment.metrics.text(), media_type=deployment.metrics.content_type)

    @app.get("/version")
    async def version() -> Response:
        return JSONResponse({"version": __version__, "simulated": True})

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return HTMLResponse(_PAGE.read_text(encoding="utf-8"))


def _add_sagemaker(app: FastAPI, deployment: Deployment) -> None:
    """SageMaker's container interface: a body's fields say which endpoint it is for."""

    @app.get("/ping")
    async def ping() -> Response:
        return Response(status_code=deployment.health()[0])

    @app.post("/invocations")
    async def invocations(request: Request) -> Response:
        return await _answer(deployment, None, request)


async def _answer(deployment: Deployment, path: str | None, request: Request) -> Response:
    """Answer a request; it is cancelled when the client goes away."""
    call = Call(request_id=request.state.request_id, timeout_s=deployment.options.request_timeout_s)
    try:
        async with asyncio.timeout(call.timeout_s):
            body, num_bytes = await read_body(request)
        call = dataclasses.replace(call, num_bytes=num_bytes)
        answer = deployment.answer(path or _endpoint_of(deployment, body), body, call)
        result = await _unless_gone(request, _begin(answer))
    except ClientDisconnect:
        return Response(status_code=499)
    except TimeoutError:
        return _problem(too_slow(call.timeout_s or 0))
    except Exception as error:  # noqa: BLE001  # every error has OpenAI's form
        return _problem(error)
    if result is None:
        return Response(status_code=499)  # nobody reads it
    if isinstance(result, dict):
        return JSONResponse(result)
    if isinstance(result, str):
        return PlainTextResponse(result)
    lines = _lines(*result)
    return StreamingResponse(lines, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


async def _begin(answer: Any) -> Any:
    """Wait for an answer, or for the first chunk of a stream and the stream: until then a problem has a status."""
    result = await answer
    if isinstance(result, (dict, str)):
        return result
    return await anext(result, None), result


async def _unless_gone(request: Request, work: Any) -> Any:
    """Return the result of work, or None if the client went away before."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, gone):
            each.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _lines(first: object, rest: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    """Write events as server-sent events; an error ends the stream with its body."""
    try:
        async with contextlib.aclosing(rest):  # type: ignore[type-var]
            if first is not None:
                yield _line(first)
            async for event in rest:
                yield _line(event)
    except Exception as error:  # noqa: BLE001  # the status is sent already
        yield _line(problem_of(error)[1])
    yield b"data: [DONE]\n\n"


def _line(event: Any) -> bytes:
    head = f"event: {event['type']}\n" if "type" in event else ""  # events of responses are named, others not
    return f"{head}data: {_encode(event)}\n\n".encode()


def _endpoint_of(deployment: Deployment, body: object) -> str:
    """The endpoint that a body without a path is for, by its model and the fields that an endpoint requires."""
    fields = body if isinstance(body, dict) else {}
    required = {
        path: [name for name, field in request.model_fields.items() if field.is_required()]
        for path, (_, request, _) in ENDPOINTS.items()
    }
    paths = [path for path, names in required.items() if not fields.keys().isdisjoint(names)]
    if not paths:
        known = ", ".join(dict.fromkeys(name for names in required.values() for name in names))
        raise RequestError(f"The body has none of {known}.", hint="Send one of them.", status=400)
    cards = deployment.models()["data"]
    card = next((card for card in cards if card["id"] == fields.get("model")), cards[0])
    return next((path for path in paths if path in card["endpoints"]), paths[0])


def _problem(error: BaseException) -> Response:
    status, body = problem_of(error)
    return JSONResponse(body, status_code=status, headers=_retry(status))


def _retry(status: int) -> dict[str, str]:
    return {"Retry-After": str(RETRY_AFTER_S)} if status in (429, 503) else {}


async def _write_http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = {404: f"There is no path {request.url.path}.", 405: f"{request.url.path} does not take {request.method}."}
    message = text.get(error.status_code, str(error.detail))
    return JSONResponse(body_of(error.status_code, message), status_code=error.status_code, headers=error.headers)
