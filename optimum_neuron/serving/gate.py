"""What every request passes: an identity, a key, limits of its body, and a count; a bug becomes a status without text.

It is plain ASGI, so that streams pass unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
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

BODY_TIMEOUT_S = 60.0
"""Time between two pieces of a body, as in nginx."""
LINGER_S = 5.0
"""Time in which the rest of a body is read and dropped after an early answer, so that the client gets the answer."""
_BODIES_AT_ONCE = 16
"""The bodies of all requests together may be so many times as large as the largest body."""

_IDENTITY = re.compile(r"[\w.:-]{1,128}", re.ASCII)


class Gate:
    """ASGI middleware around the application."""

    def __init__(self, app: Any, *, options: ServeOptions, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics
        self._keys = [key.encode() for key in options.api_key]
        self._max_body_bytes = options.max_body_bytes
        self._room = _Room(_BODIES_AT_ONCE * options.max_body_bytes)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = headers.get("x-request-id", "")
        identity = given if _IDENTITY.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = uuid.uuid4().hex
        exchange = _Exchange(receive, send, identity, self._max_body_bytes, self._room)
        exchange.has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        started = time.perf_counter()
        try:
            if (problem := self._problem(scope, headers)) is not None:
                await exchange.reply(*problem)
            else:
                await self._app(scope, exchange.receive, exchange.send)
        except Exception as error:  # noqa: BLE001  # a client gets no traceback
            await exchange.reply(*problem_of(error))
        finally:
            exchange.close()
            route = scope.get("route")
            path = "other" if route is None else route.path
            self._metrics.note_http(path, scope["method"], exchange.status, time.perf_counter() - started)

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


class _Room:
    """Memory for the bodies of all requests."""

    def __init__(self, limit: int) -> None:
        self._limit, self._used = limit, 0

    def take(self, num_bytes: int) -> None:
        """Take memory, or give it back if the number is negative."""
        if num_bytes > 0 and self._used + num_bytes > self._limit:
            message = f"The bodies of all requests have more than {self._limit} bytes."
            raise RequestError(message, hint="Try again later.", status=503)
        self._used += num_bytes


class _Exchange:
    """Receive and send of one request: limits the body, notes the status, and adds the identity.

    An answer before the end of the body closes the connection: the client may send the rest without end.
    """

    def __init__(self, receive: Any, send: Any, identity: str, limit: int, room: _Room) -> None:
        self._receive, self._send, self._identity = receive, send, identity
        self._limit, self._num_bytes, self._room = limit, 0, room
        self.has_body = False
        """Whether the head announces a body."""
        self._is_whole = self._is_early = False
        self.status = 0
        """Status that was sent; 0 before."""

    async def receive(self) -> Any:
        """Return the next message, unless the body is too large or too slow."""
        if self._is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                message = await self._receive()
        except TimeoutError:
            text = f"The next piece of the body took longer than {BODY_TIMEOUT_S:g} s."
            raise RequestError(text, hint="Send the request again.", status=408) from None
        self._is_whole = not message.get("more_body", False)
        num_bytes = len(message.get("body", b""))
        if self._num_bytes + num_bytes > self._limit:
            raise _too_large(self._limit)
        self._room.take(num_bytes)
        self._num_bytes += num_bytes
        return message

    async def send(self, message: Any) -> None:
        """Send a message; the first one has the identity."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._is_early = self.has_body and not self._is_whole
            more = [(b"x-request-id", self._identity.encode())] + [(b"connection", b"close")] * self._is_early
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        elif self._is_early and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._drop_rest()
            message = {"type": "http.response.body"}
        await self._send(message)

    async def _drop_rest(self) -> None:
        """Read the rest of the body for a while: a connection that is closed before would lose the answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while (await self._receive()).get("more_body", False):
                    pass

    def close(self) -> None:
        """Give the memory of the body back."""
        self._room.take(-self._num_bytes)

    async def reply(self, status: int, body: dict[str, Any]) -> None:
        """Send a whole response, unless one has begun."""
        if self.status:
            return
        raw = json.dumps(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": raw})
