"""A trace: requests with the time of their arrival and the tokens of their prompts and answers.

    trace = poisson_trace(2.0, num_requests=100, num_prompt=512, num_answer=128)
    trace.requests_per_s

`formats.py` reads traces from files. It does not know models.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from ...errors import ConfigError
from ..continuous import poisson_arrivals
from ..machine import positive


@dataclasses.dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace."""

    arrival_s: float
    """Seconds after the first request."""
    num_prompt: int
    num_answer: int

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt and the answer."""
        return self.num_prompt + self.num_answer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trace:
    """Requests in the order of their arrival."""

    source: str
    """Origin of the requests, in words."""
    requests: tuple[TraceRequest, ...]
    has_arrivals: bool = True
    """Whether the origin has times of arrival; without them, all requests arrive at once."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.requests:
            message = f"{self.source} has no request with a prompt and an answer."
            raise ConfigError(message, hint="Pass a trace with requests.", option="simulate", value=self.source)

    @property
    def span_s(self) -> float:
        """Time from the first arrival to the last."""
        return self.requests[-1].arrival_s

    @property
    def requests_per_s(self) -> float:
        """Mean rate of arrivals; infinite if all arrive at once."""
        return (len(self.requests) - 1) / self.span_s if self.span_s else math.inf

    @property
    def longest(self) -> int:
        """Tokens of the longest request."""
        return max(request.num_tokens for request in self.requests)

    def mean(self, name: str) -> float:
        """Return the mean of `num_prompt` or `num_answer`."""
        return sum(getattr(request, name) for request in self.requests) / len(self.requests)

    def first(self, num_requests: int | None) -> Trace:
        """Return the trace up to so many requests; None returns all of it."""
        if num_requests is None or num_requests >= len(self.requests):
            return self
        note = f"the first {positive('num_prompts', num_requests)} of {len(self.requests)} requests"
        return dataclasses.replace(self, requests=self.requests[:num_requests], notes=(*self.notes, note))

    def at_rate(self, requests_per_s: float, *, seed: int = 0) -> Trace:
        """Return the same requests with random arrivals (Poisson) at another rate."""
        arrivals = poisson_arrivals(_rate(requests_per_s), len(self.requests), seed=seed)
        requests = tuple(
            dataclasses.replace(request, arrival_s=arrival - arrivals[0])
            for request, arrival in zip(self.requests, arrivals, strict=True)
        )
        note = f"Poisson arrivals, {requests_per_s:g} requests each second, seed {seed}"
        return dataclasses.replace(self, requests=requests, has_arrivals=True, notes=(*self.notes, note))

    def to_dict(self) -> dict[str, Any]:
        """Plain data without the requests."""
        return {
            "source": self.source,
            "num_requests": len(self.requests),
            "span_s": self.span_s,
            "requests_per_s": None if math.isinf(self.requests_per_s) else self.requests_per_s,
            "mean_input_tokens": self.mean("num_prompt"),
            "mean_output_tokens": self.mean("num_answer"),
            "longest_tokens": self.longest,
            "notes": list(self.notes),
        }


def poisson_trace(
    requests_per_s: float, *, num_requests: int, num_prompt: int, num_answer: int, seed: int = 0
) -> Trace:
    """Return requests of equal lengths that arrive independently of each other.

    Raises:
        ConfigError: the rate or a size is not above 0.

    Example:
        ```python
        from optimum_neuron.simulator import poisson_trace

        trace = poisson_trace(2.0, num_requests=1000, num_prompt=512, num_answer=128)
        assert 1.8 < trace.requests_per_s < 2.2
        ```
    """
    request = TraceRequest(0.0, positive("input_length", num_prompt), positive("output_length", num_answer))
    requests = (request,) * positive("num_prompts", num_requests)
    source = f"{num_requests} requests of {num_prompt} + {num_answer} tokens"
    return Trace(source=source, requests=requests, has_arrivals=False).at_rate(requests_per_s, seed=seed)


def _rate(requests_per_s: float) -> float:
    if not 0 < requests_per_s < 1e9:
        message = f"{requests_per_s:g} is not a rate of arrivals."
        raise ConfigError(message, hint="Pass a number such as 2.5.", option="request_rate", value=requests_per_s)
    return requests_per_s
