"""Responses that `/v1/responses` keeps, so that later requests can go on from them; the oldest are forgotten first.

It is memory of one process: a restart, or another replica, has none of them.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from typing import Any

from ..errors import RequestError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """A response, and the chat up to it."""

    response: dict[str, Any]
    messages: list[dict[str, Any]]
    """Messages of the chat, in the form of `/v1/chat/completions`, the answer included, without instructions."""
    size_bytes: int


class ResponseStore:
    """A bounded memory of responses."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._num_bytes = max_bytes, 0
        self._stored: collections.OrderedDict[str, Stored] = collections.OrderedDict()

    @property
    def is_off(self) -> bool:
        """Whether nothing is kept."""
        return not self._max_bytes

    def put(self, response: dict[str, Any], messages: list[dict[str, Any]]) -> None:
        """Keep a response; the oldest ones make room."""
        size_bytes = len(json.dumps(response)) + len(json.dumps(messages))
        self._stored[response["id"]] = Stored(response=response, messages=messages, size_bytes=size_bytes)
        self._num_bytes += size_bytes
        while self._num_bytes > self._max_bytes:
            _, oldest = self._stored.popitem(last=False)
            self._num_bytes -= oldest.size_bytes

    def get(self, response_id: str, *, param: str = "response_id") -> Stored:
        """Return a response."""
        if response_id not in self._stored:
            message = f"The response {response_id!r} is not kept."
            hint = "It was never stored, is deleted, or made room for newer ones. Send the whole conversation as input."
            raise RequestError(message, hint=hint, status=404, param=param, code="response_not_found")
        self._stored.move_to_end(response_id)
        return self._stored[response_id]

    def delete(self, response_id: str) -> None:
        """Forget a response."""
        self._num_bytes -= self.get(response_id).size_bytes
        del self._stored[response_id]
