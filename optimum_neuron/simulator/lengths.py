"""Tokens of a request: prompt, answer, and the compiled length that holds both.

The prompt is padded to a compiled size; `Padding` says by how much. It depends on nothing else.

    >>> choose_lengths(None, 300, 100, limit=4096)
    Lengths(sequence=400, prompt=300, answer=100)
    >>> choose_lengths(1024, None, None, limit=4096)
    Lengths(sequence=1024, prompt=512, answer=512)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ..errors import ConfigError
from .machine import positive


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Tokens of each request."""

    sequence: int
    prompt: int
    answer: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Padding:
    """The compiled sizes that a prompt and its answer run in."""

    input_tokens: int
    prefill_tokens: int
    """Tokens that the prefill graphs of the prompt compute, padding included."""
    decode_slots: int | None
    """Cache slots that the middle step of the answer attends to; None for an encoder-decoder."""
    cached_tokens: int = 0
    """Tokens of the prompt that are found in the prefix cache and are not computed."""

    @property
    def share(self) -> float:
        """Share of the prefill that is padding."""
        return 1 - (self.input_tokens - self.cached_tokens) / self.prefill_tokens

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self) | {"share": self.share}


def choose_lengths(sequence: int | None, prompt: int | None, answer: int | None, *, limit: int) -> Lengths:
    """Fill in the lengths that a request leaves out.

    Args:
        sequence: compiled length; None for prompt and answer if both are given, otherwise `limit`.
        prompt: tokens of a prompt; None for what the answer leaves.
        answer: tokens of an answer; None for what the prompt leaves, or half of the compiled length.
        limit: compiled length of a request that gives none.
    """
    given = {"sequence_length": sequence, "input_length": prompt, "output_length": answer}
    for name, value in given.items():
        if value is not None:
            positive(name, value)
    length = sequence or (prompt + answer if prompt and answer else limit)
    if answer is None:
        answer = max(length // 2, 1) if prompt is None else length - prompt
    if prompt is None:
        prompt = length - answer
    if prompt < 1 or answer < 1 or prompt + answer > length:
        if given["input_length"] is None:
            message = f"output_length={answer} leaves no room for a prompt in sequence_length={length}."
        elif given["output_length"] is None:
            message = f"input_length={prompt} leaves no room for an answer in sequence_length={length}."
        else:
            message = f"input_length={prompt} and output_length={answer} exceed sequence_length={length}."
        hint = "Pass a longer sequence_length, or a shorter prompt or answer."
        raise ConfigError(message, hint=hint, **{**given, "sequence_length": length})
    return Lengths(sequence=length, prompt=prompt, answer=answer)


def steps_by_bucket(prompt: int, answer: int, bucket_of: Callable[[int], int]) -> dict[int, int]:
    """Count the steps of an answer by the cache slots that each attends to.

    A step attends to the prompt, the tokens before it, and its own.

    >>> steps_by_bucket(100, 200, lambda tokens: 128 if tokens <= 128 else 512)
    {128: 28, 512: 172}
    """
    counts: dict[int, int] = {}
    first, last = prompt + 1, prompt + answer
    while first <= last:
        slots = bucket_of(first)
        end = last if slots < first else min(slots, last)
        counts[slots] = counts.get(slots, 0) + end - first + 1
        first = end + 1
    return counts
