"""One request: what was asked, what it has got, and where its keys and values are. It does not depend on torch."""

from __future__ import annotations

import dataclasses
import enum
import time
from collections.abc import Callable
from typing import Any


class Status(enum.IntEnum):
    """Where a request is in its life; the numbers are those of transformers' `RequestStatus`."""

    WAITING = 0
    PREFILLING = 1
    DECODING = 2
    FINISHED = 3
    FAILED = 4


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Adapter:
    """A LoRA adapter that stays loaded while a request has it."""

    index: int = 0
    """Its index in the program; 0 is the base model."""
    key: bytes = b""
    """Differs for adapters that were loaded one after the other: keys and values depend on it."""
    release: Callable[[], None] = lambda: None
    """Called once when the request is over."""


@dataclasses.dataclass(kw_only=True)
class SimulatedTimes:
    """Times of a request on the simulated device, in seconds of its engine's clock."""

    arrival_s: float | None = None
    """Arrival; None until the engine takes the request."""
    start_s: float | None = None
    """First chunk of its prompt."""
    first_token_s: float | None = None
    end_s: float | None = None
    """Last token."""
    num_tokens: int = 0

    def start(self, now_s: float) -> None:
        """Note the first time that its prompt is read."""
        self.start_s = now_s if self.start_s is None else self.start_s

    def note_answer(self, now_s: float, num_tokens: int) -> None:
        """Note that the answer has so many tokens from now on."""
        self.first_token_s = now_s if self.first_token_s is None else self.first_token_s
        self.end_s, self.num_tokens = now_s, num_tokens

    @property
    def wait_s(self) -> float | None:
        """Time until the prompt is read, if it was."""
        return None if self.start_s is None or self.arrival_s is None else self.start_s - self.arrival_s

    @property
    def ttft_s(self) -> float | None:
        """Time to the first token, if there is one."""
        return None if self.first_token_s is None or self.arrival_s is None else self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first, if there are several."""
        if self.end_s is None or self.first_token_s is None or self.num_tokens < 2:
            return None
        return (self.end_s - self.first_token_s) / (self.num_tokens - 1)

    @property
    def latency_s(self) -> float | None:
        """Time to the newest token, if there is one."""
        return None if self.end_s is None or self.arrival_s is None else self.end_s - self.arrival_s


@dataclasses.dataclass(kw_only=True, eq=False)
class Request:
    """A prompt and its answer."""

    request_id: str
    prompt: list[int]
    max_new_tokens: int
    """Most tokens of the answer; at least 1."""
    sampler: Any = None
    """Chooses tokens, see `sampling.py`; None in tests of the scheduler."""
    draft: Any = None
    """Proposes candidates, see `engine.SequenceDraft`; None: every token takes a step."""
    adapter: Adapter = dataclasses.field(default_factory=Adapter)
    """Its LoRA adapter; the default is the base model."""
    hashes: list[bytes] = dataclasses.field(default_factory=list)
    """Content of each full block of the prompt, with all before it; empty: the request shares nothing."""
    streaming: bool = False
    """Whether every token is delivered at once."""
    record_timestamps: bool = False

    priority: int = 0
    """Requests with a lower number come first, whenever they arrive."""
    order: int = 0
    """Number of its arrival: of the same priority, later ones give way to earlier ones."""
    status: Status = Status.WAITING
    answer: list[int] = dataclasses.field(default_factory=list)
    candidates: list[int] = dataclasses.field(default_factory=list)
    """Tokens that its draft proposes behind the answer; the next step checks them."""
    logprobs: list[float] = dataclasses.field(default_factory=list)
    error: Exception | None = None
    num_computed: int = 0
    """Tokens whose keys and values are in the cache, from the first on."""
    num_shared: int = 0
    """Tokens of the prompt that an earlier request computed."""
    blocks: list[int] = dataclasses.field(default_factory=list)
    """Its blocks, in the order of its tokens."""
    row: int | None = None
    """Its row of a step, while it runs."""
    state: Any = None
    """The cache with the host code that it began with, once it runs."""
    reading: str = ""
    """What is read of its steps, and why, if they return candidates of the device."""
    is_finite: bool = True
    """Whether its logits were numbers so far; else its blocks hold NaN or infinity."""
    saved: Any = None
    """Contents of its blocks on the host, while it is preempted."""
    created_s: float = dataclasses.field(default_factory=time.perf_counter)
    started_s: float = -1.0
    ended_s: float = -1.0
    timestamps: list[float] = dataclasses.field(default_factory=list)
    simulated: SimulatedTimes = dataclasses.field(default_factory=SimulatedTimes)

    @property
    def rank(self) -> tuple[int, int]:
        """Place among all requests, the first one smallest."""
        return self.priority, self.order

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt and the answer so far."""
        return len(self.prompt) + len(self.answer)

    @property
    def num_next(self) -> int:
        """Tokens in the cache after its next step, candidates included."""
        return self.num_computed + 1 + len(self.candidates)

    @property
    def is_over(self) -> bool:
        """Whether it is answered, failed, or cancelled."""
        return self.status >= Status.FINISHED

    @property
    def is_prompt_read(self) -> bool:
        """Whether its next token comes from a step."""
        return self.num_computed >= len(self.prompt)

    def start(self) -> None:
        """Note the first time that it runs."""
        self.started_s = time.perf_counter() if self.started_s < 0 else self.started_s

    def end(self, status: Status, error: Exception | None = None) -> None:
        """Note that it is over."""
        self.start()
        self.adapter.release()
        self.state = None
        self.status, self.error, self.ended_s = status, error, time.perf_counter()

    def add(self, token: int, logprob: float | None) -> None:
        """Add a token to the answer."""
        self.answer.append(token)
        if logprob is not None:
            self.logprobs.append(logprob)
        if self.record_timestamps:
            self.timestamps.append(time.perf_counter())
