"""What models that answer in one call have in common: a queue, a thread for host work, metrics, and an orderly end.

It does not know tasks: a subclass says how a batch is computed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import time
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ...errors import RequestError
from ...runtime import HbmLedger
from ..answers import Call
from ..generator import Finished
from .batcher import Batcher, IsWanted

if TYPE_CHECKING:
    from ..protocol import TextRequest
    from ..served import Served

Features = dict[str, list[int]]
"""What a tokenizer makes of one text, or of a pair."""


class BatchedModel:
    """A loaded model behind a queue."""

    max_length: int | None = None
    """Most tokens of an input, for models of text."""
    fatal_error: Exception | None = None
    """A batch that fails ends no other."""
    max_batch_size: ClassVar[int] = 32

    def __init__(self, model: Any, served: Served) -> None:
        self.model = model
        self._on_finished = served.note_finished
        self.batcher: Batcher[Any, Any] = Batcher(
            self._compute,
            max_batch_size=self.max_batch_size,
            max_queue_size=served.max_queue_size,
            key=self._batch_key,
        )
        # One thread: tokenizers are not safe for several.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="serving")

    def _compute(self, items: list[Any], is_wanted: IsWanted) -> Sequence[Any]:
        """Return a result for each item of a batch."""
        raise NotImplementedError

    def _batch_key(self, item: Any) -> Hashable:
        """Items with the same key can be in one batch."""
        return None

    @property
    def ledgers(self) -> tuple[HbmLedger, ...]:
        """Memory of the model's cores."""
        return tuple(ledger for loaded in self.model.copies.loaded for ledger in loaded.claim.ledgers)

    @property
    def num_running(self) -> int:
        """Requests that run."""
        return self.batcher.num_running

    @property
    def num_waiting(self) -> int:
        """Requests that wait."""
        return self.batcher.num_waiting

    def close(self, timeout_s: float | None = None) -> None:
        """Answer all requests, at most for `timeout_s` seconds, then end."""
        self.batcher.close(timeout_s)
        self._thread.shutdown(cancel_futures=True)
        self.model.close()

    async def run(self, work: Callable[..., Any], *arguments: object) -> Any:
        """Run work on the host, such as tokenizing, outside of the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    async def compute(
        self, items: Sequence[Any], call: Call, *, priority: int = 0, num_prompt: int | None = None
    ) -> list[Any]:
        """Return the results of items, which wait for their turn."""
        arrival_s, reason = time.perf_counter(), "abort"
        try:
            results = await self.batcher.run(items, priority=priority, timeout_s=call.timeout_s)
            reason = "stop"
            return results
        finally:
            end_s = time.perf_counter()
            self._on_finished(Finished(num_prompt=num_prompt, arrival_s=arrival_s, end_s=end_s, reason=reason))


_AT_ONCE = 32
"""Texts that are tokenized before those of another request."""


class TextModel(BatchedModel):
    """A model of tokenized texts."""

    def features(self, item: Any, body: TextRequest) -> Features:
        """Return the features of a text, or of a pair."""
        raise NotImplementedError

    async def features_of(self, items: Sequence[Any], body: TextRequest) -> list[Features]:
        """Return the features of texts or pairs; a long list does not delay those of other requests."""
        rows: list[Features] = []
        for start in range(0, len(items), _AT_ONCE):
            rows += await self.run(self._part_of, items[start : start + _AT_ONCE], body)
        return rows

    def _part_of(self, items: Sequence[Any], body: TextRequest) -> list[Features]:
        return [self.features(item, body) for item in items]

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self.model.tokenizer

    @functools.cached_property
    def _longest(self) -> int:
        """Characters of the longest token; at least 100, because WordPiece reads longer words as one unknown token."""
        return max(100, *map(len, self.tokenizer.get_vocab()))

    def _checked(self, features: Features, body: TextRequest) -> Features:
        """Return features that fit the model, cut if the body wants it."""
        assert self.max_length is not None, "set by the subclass"
        num_tokens, limit = len(features["input_ids"]), body.truncate_prompt_tokens
        if not num_tokens:
            raise RequestError("A text is empty.", hint="Send at least one token.", status=400, param="input")
        if limit is None and num_tokens > self.max_length:
            message = f"A text has {num_tokens} tokens, but the model takes {self.max_length}."
            hint = "Send a shorter text, or truncate_prompt_tokens=-1."
            raise RequestError(message, hint=hint, status=400, code="context_length_exceeded", param="input")
        return features

    def _tokenized(self, body: TextRequest, *texts: str) -> Features:
        """Return the features of a text, or of a pair."""
        limit = body.truncate_prompt_tokens
        most = None if limit is None else self.max_length if limit == -1 else min(limit, self.max_length or limit)
        most_characters = (self.max_length or 0) * self._longest
        if sum(map(len, texts)) > most_characters:
            if most is None:
                message = (
                    f"A text has more than {most_characters} characters, but the model takes {self.max_length} tokens."
                )
                hint = "Send a shorter text, or truncate_prompt_tokens=-1."
                raise RequestError(message, hint=hint, status=400, code="context_length_exceeded", param="input")
            texts = tuple(text[:most_characters] for text in texts)
        encoded = self.tokenizer(*texts, truncation=most is not None, max_length=most)
        names = self.model.signature.names
        return self._checked({name: row for name, row in encoded.items() if name in names}, body)

    def padded(self, rows: Sequence[Features]) -> dict[str, torch.Tensor]:
        """Return the features of a batch as tensors, padded as the tokenizer does it."""
        length = max(len(row["input_ids"]) for row in rows)
        is_left = self.tokenizer.padding_side == "left"
        fill = {"input_ids": self.tokenizer.pad_token_id or 0}

        def pad(name: str, values: list[int]) -> list[int]:
            padding = [fill.get(name, 0)] * (length - len(values))
            return [*padding, *values] if is_left else [*values, *padding]

        return {name: torch.tensor([pad(name, row[name]) for row in rows]) for name in rows[0]}
