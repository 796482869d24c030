"""A connection with limits that uvicorn does not have: the size of a request's head, and the time until it is whole.

It knows neither models nor bodies.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

MAX_HEAD_BYTES = 64 * 2**10
"""Largest request line with headers; nginx takes 8 KiB of each line and 32 KiB together."""
HEAD_TIMEOUT_S = 30.0
"""Time from the first byte of a request to the end of its headers."""


class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's connection, which closes when a head is too large or too slow."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._num_bytes = 0
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(HEAD_TIMEOUT_S, self._end_slow)

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
            self._end(b"431 Request Header Fields Too Large")
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_TIMEOUT_S, self._end_slow)

    @property
    def _waits_for_head(self) -> bool:
        # The rest of a body may come after an early answer, such as 413.
        return self.cycle is None or (self.cycle.response_complete and not self.cycle.more_body)

    def _end_slow(self) -> None:
        self._timer = None
        if self._waits_for_head:
            self._end(b"408 Request Timeout")

    def _end(self, status: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
