"""A connection with limits that uvicorn does not have: the number of them, the size of a head, and the time for it.

It knows neither models nor bodies. Errors that uvicorn finds itself have OpenAI's form too.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from .problems import RETRY_AFTER_S, body_of

MAX_HEAD_BYTES = 64 * 2**10
"""Largest request line with headers; nginx takes 8 KiB of each line and 32 KiB together."""
HEAD_TIMEOUT_S = 30.0
"""Time from the first byte of a request to the end of its headers."""


class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's connection, which closes when a head is too large or too slow, or when there are too many."""

    def __init__(self, *arguments: object, max_connections: int, **options: object) -> None:
        super().__init__(*arguments, **options)
        self._max_connections = max_connections

    def connection_made(self, transport: object) -> None:
        """Begin to wait for a head, unless there are too many connections."""
        super().connection_made(transport)
        self._num_bytes = 0
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(HEAD_TIMEOUT_S, self._end_slow)
        if len(self.connections) > self._max_connections:
            self._end(503, f"The server has {self._max_connections} connections already. Try again later.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time limit."""
        super().connection_lost(exc)
        self._stop_timer()

    def data_received(self, data: bytes) -> None:
        """Pass bytes on while the head is within its limits."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before or not self._waits_for_head:  # a head is whole, or this was its body
            self._num_bytes = 0
            self._stop_timer()
            return
        self._num_bytes += len(data)
        if self._num_bytes > MAX_HEAD_BYTES:
            self._end(431, f"The head of the request is larger than {MAX_HEAD_BYTES} bytes.")
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_TIMEOUT_S, self._end_slow)

    def shutdown(self) -> None:
        """Begin to close: a request whose body is not whole gets no other answer."""
        if self._waits_for_head or self.cycle.response_started or not self.cycle.more_body:
            super().shutdown()
        else:
            self._end(503, "The server is stopping. Send the request to another one.")

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no request."""
        self._end(400, msg)

    @property
    def _waits_for_head(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _end_slow(self) -> None:
        self._timer = None
        if self._waits_for_head:
            self._end(408, f"The head of the request took longer than {HEAD_TIMEOUT_S:g} s.")

    def _end(self, status: int, message: str) -> None:
        """Close the connection, with an error if no answer has begun."""
        if self.transport.is_closing():
            return
        if self._waits_for_head or not self.cycle.response_started:
            raw = json.dumps(body_of(status, message)).encode()
            retry = f"retry-after: {RETRY_AFTER_S}\r\n" if status == 503 else ""
            head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n{retry}"
            self.transport.write(f"{head}connection: close\r\ncontent-length: {len(raw)}\r\n\r\n".encode() + raw)
        self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
