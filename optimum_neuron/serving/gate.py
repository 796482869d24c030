"""What every request passes: an identity, a key, a limit of its size, and a count; a bug becomes a status without text.

It is plain ASGI, so that streams pass unchanged.
"""

from __future__ import annotations

import hmac
import json
import re
import time
import uuid
from typing import Any

from ..errors import RequestError
from .connection import MAX_HEAD_BYTES
from .metrics import Metrics
from .options import ServeOptions
from .problems import body_of, problem_of

_OPEN = ("/", "/health", "/ping", "/metrics", "/version")
"""Paths that need no key: probes and scrapers have none."""

_IDENTITY = re.compile(r"[\w.:-]{1,128}", re.ASCII)


class Gate:
    """ASGI middleware around the application."""

    def __init__(self, app: Any, *, options: ServeOptions, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics
        self._keys = [key.encode() for key in options.api_key]
        self._max_body_bytes = options.max_body_bytes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = headers.get("x-request-id", "")
        identity = given if _IDENTITY.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = uuid.uuid4().hex
        exchange = _Exchange(receive, send, identity, self._max_body_bytes)
        started = time.perf_counter()
        try:
            if (problem := self._problem(scope, headers)) is not None:
                await exchange.reply(*problem)
            else:
                await self._app(scope, exchange.receive, exchange.send)
        except Exception as error:  # noqa: BLE001  # a client gets no traceback
            await exchange.reply(*problem_of(error))
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.note_http(route, scope["method"], exchange.status, time.perf_counter() - started)

    def _problem(self, scope: Any, headers: dict[str, str]) -> tuple[int, dict[str, Any]] | None:
        """The reason to reject a request before it is read."""
        if self._keys and scope["path"] not in _OPEN and scope["method"] != "OPTIONS":
            scheme, _, key = headers.get("authorization", "").partition(" ")
            sent = (key if scheme.lower() == "bearer" else headers.get("x-api-key", "")).strip().encode()
            if not any([hmac.compare_digest(sent, each) for each in self._keys]):
                message = "The request has no valid key. Send the header: Authorization: Bearer KEY"
                return 401, body_of(401, message, code="invalid_api_key")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEAD_BYTES:
            return 431, body_of(431, f"The headers are larger than {MAX_HEAD_BYTES} bytes.")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._max_body_bytes:
            return problem_of(_too_large(self._max_body_bytes))
        return None


def _too_large(limit: int) -> RequestError:
    return RequestError(f"The body is larger than {limit} bytes.", hint="Send a smaller one.", status=413)


class _Exchange:
    """Receive and send of one request: counts bytes, notes the status, and adds the identity."""

    def __init__(self, receive: Any, send: Any, identity: str, limit: int) -> None:
        self._receive, self._send, self._identity = receive, send, identity
        self._limit, self._num_bytes = limit, 0
        self.status = 0
        """Status that was sent; 0 before."""

    async def receive(self) -> Any:
        """Return the next message, unless the body is too large."""
        message = await self._receive()
        self._num_bytes += len(message.get("body", b""))
        if self._num_bytes > self._limit:
            raise _too_large(self._limit)
        return message

    async def send(self, message: Any) -> None:
        """Send a message; the first one has the identity."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", self._identity.encode())]}
        await self._send(message)

    async def reply(self, status: int, body: dict[str, Any]) -> None:
        """Send a whole response, unless one has begun."""
        if self.status:
            return
        raw = json.dumps(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": raw})
