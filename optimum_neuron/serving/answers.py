"""Forms that endpoints of text have in common: usage, names of tokens, identities, and pieces gathered to answers."""

from __future__ import annotations

import asyncio
import dataclasses
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from ..batching import SimulatedTimes
from .generator import Generator, Piece
from .logits import TokenLogprob
from .response_store import ResponseStore

Result = TypeVar("Result")
Event = dict[str, Any]
"""One chunk of a stream."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """What the server knows about a request beside its body."""

    request_id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    timeout_s: float | None = None
    num_bytes: int = 0
    created: int = dataclasses.field(default_factory=lambda: int(time.time()))
    responses: ResponseStore | None = None
    """Earlier responses, which `/v1/responses` can go on from; set by the deployment."""

    def within(self, timeout_s: float | None) -> Call:
        """Return the call with the limit of a body too: the shorter one counts."""
        return dataclasses.replace(self, timeout_s=min(filter(None, (timeout_s, self.timeout_s)), default=None))


@dataclasses.dataclass(kw_only=True)
class Gathered:
    """One whole answer."""

    text: str = ""
    tokens: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[TokenLogprob] = dataclasses.field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    num_cached: int = 0
    """Tokens of the prompt that an earlier request had computed."""

    def add(self, piece: Piece) -> None:
        """Add the next piece."""
        self.text += piece.text
        self.tokens += piece.tokens
        self.logprobs += piece.logprobs
        self.finish_reason, self.stop_reason = piece.finish_reason, piece.stop_reason
        self.num_cached = max(self.num_cached, piece.num_cached)


async def gather(pieces: AsyncIterator[Piece], num_answers: int) -> list[Gathered]:
    """Return all answers, whole."""
    answers = [Gathered() for _ in range(num_answers)]
    async for piece in pieces:
        answers[piece.index].add(piece)
    return answers


async def together(jobs: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Return the results of jobs that run at the same time; if one fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def usage(num_prompt: int, num_answer: int, num_cached: int) -> dict[str, Any]:
    """Return numbers of tokens in OpenAI's form; the cached ones are part of the prompt."""
    return {
        "prompt_tokens": num_prompt,
        "prompt_tokens_details": {"cached_tokens": num_cached},
        "completion_tokens": num_answer,
        "total_tokens": num_prompt + num_answer,
    }


def simulated_times(times: SimulatedTimes | None) -> dict[str, Any] | None:
    """Return the times of an answer on the simulated device in milliseconds, for a client that shows them."""
    if times is None or times.ttft_s is None:
        return None
    return {"ttft_ms": 1e3 * times.ttft_s, "tpot_ms": None if times.tpot_s is None else 1e3 * times.tpot_s}


def token_name(generator: Generator, token: int, *, as_id: bool = False) -> str:
    """Return the text of a token, or "token_id:7" as in vLLM."""
    if as_id:
        return f"token_id:{token}"
    return str(generator.tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))


def chat_logprobs(generator: Generator, logprobs: Sequence[TokenLogprob], *, as_ids: bool) -> dict[str, Any]:
    """Return probabilities in the form of chats."""

    def part(token: int, logprob: float) -> dict[str, Any]:
        name = token_name(generator, token, as_id=as_ids)
        return {"token": name, "logprob": max(logprob, -9999.0), "bytes": list(name.encode())}

    content = [
        {**part(one.token, one.logprob), "top_logprobs": [part(token, value) for token, value in one.top]}
        for one in logprobs
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(
    generator: Generator, logprobs: Sequence[TokenLogprob | int], *, as_ids: bool, offset: int = 0
) -> dict[str, Any]:
    """Return probabilities in the form of completions; a token without one, the first of a prompt, is an id."""
    tokens: list[str] = []
    values: list[float | None] = []
    tops: list[dict[str, float] | None] = []
    offsets: list[int] = []
    for one in logprobs:
        token = one if isinstance(one, int) else one.token
        tokens.append(token_name(generator, token, as_id=as_ids))
        offsets.append(offset)
        offset += len(tokens[-1])
        if isinstance(one, int):
            values.append(None)
            tops.append(None)
            continue
        value = max(one.logprob, -9999.0)
        values.append(value)
        top = {token_name(generator, token, as_id=as_ids): max(value, -9999.0) for token, value in one.top}
        tops.append({**top, tokens[-1]: value})
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}
