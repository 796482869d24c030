"""What vLLM's calls return, with its fields."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from .adapters import LoRARequest


@dataclasses.dataclass
class Logprob:
    """The logarithmic probability of a token, and its rank in the vocabulary, from 1."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


Logprobs = dict[int, Logprob]
"""By token: the one that was chosen, and the likeliest."""


@dataclasses.dataclass
class CompletionOutput:
    """One answer."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[Logprobs] | None = None
    finish_reason: str | None = None
    """ "stop", "length", or "abort"; None while it goes on."""
    stop_reason: int | str | None = None
    """Token or text that ended it, other than the model's end."""
    lora_request: LoRARequest | None = None

    def finished(self) -> bool:
        """Return whether the answer is complete."""
        return self.finish_reason is not None


@dataclasses.dataclass
class RequestOutput:
    """The answers to a prompt."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int] | None
    prompt_logprobs: list[Logprobs | None] | None
    """None for the first token."""
    outputs: list[CompletionOutput]
    finished: bool
    metrics: Any = None
    lora_request: LoRARequest | None = None
    encoder_prompt: str | None = None
    encoder_prompt_token_ids: list[int] | None = None
    num_cached_tokens: int | None = None
    """Tokens of the prompt that an earlier request had computed."""
    multi_modal_placeholders: dict[str, Any] = dataclasses.field(default_factory=dict, kw_only=True)
    kv_transfer_params: dict[str, Any] | None = dataclasses.field(default=None, kw_only=True)


@dataclasses.dataclass
class PoolingOutput:
    """What a model without answers computes for a text."""

    data: torch.Tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PoolingOutput) and torch.equal(self.data, other.data)


@dataclasses.dataclass
class EmbeddingOutput:
    """The vector of a text."""

    embedding: list[float]

    @property
    def hidden_size(self) -> int:
        """Length of the vector."""
        return len(self.embedding)


@dataclasses.dataclass
class ClassificationOutput:
    """The probability of each class."""

    probs: list[float]

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.probs)


@dataclasses.dataclass
class ScoringOutput:
    """How well two texts fit each other."""

    score: float


@dataclasses.dataclass
class PoolingRequestOutput:
    """The result for one text, or for a pair."""

    request_id: str
    outputs: Any
    prompt_token_ids: list[int]
    finished: bool = True
    num_cached_tokens: int = 0


class EmbeddingRequestOutput(PoolingRequestOutput):
    """`outputs` is an `EmbeddingOutput`."""


class ClassificationRequestOutput(PoolingRequestOutput):
    """`outputs` is a `ClassificationOutput`."""


class ScoringRequestOutput(PoolingRequestOutput):
    """`outputs` is a `ScoringOutput`."""


@dataclasses.dataclass
class BeamSearchSequence:
    """One of the sequences that `LLM.beam_search` finds; tokens and text have the prompt too."""

    tokens: list[int]
    logprobs: list[Logprobs]
    lora_request: LoRARequest | None = None
    cum_logprob: float = 0.0
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclasses.dataclass
class BeamSearchOutput:
    """The sequences of a prompt, the best first."""

    sequences: list[BeamSearchSequence]
