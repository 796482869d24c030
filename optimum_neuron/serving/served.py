"""What a model of the server and what answers for it know of each other.

`models.py` has the models, `runners/` and `generator.py` what answers for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..runtime import HbmLedger
from .generator import Finished
from .options import ModelSpec


class Served(Protocol):
    """A model of the server."""

    spec: ModelSpec
    max_queue_size: int

    def note_finished(self, facts: Finished) -> None:
        """Count a request that is over."""


class Replica(Protocol):
    """One copy of a served model, with its own cores."""

    model: Any
    max_length: int | None
    """Most tokens of an input; None for models of no text."""

    @property
    def ledgers(self) -> Sequence[HbmLedger]:
        """Memory of its cores."""

    @property
    def num_running(self) -> int:
        """Requests that run."""

    @property
    def num_waiting(self) -> int:
        """Requests that wait."""

    @property
    def fatal_error(self) -> Exception | None:
        """Error that ended it."""

    def close(self, timeout_s: float | None = None) -> None:
        """Answer all requests, at most for `timeout_s` seconds, then end."""
