"""Speculation in an estimate: a draft proposes candidates, and a check adds those that the model would have picked.

If each candidate is accepted with the same probability a, a check of k candidates adds (1 - a^(k+1)) / (1 - a) tokens
on average (Leviathan et al. 2023, Fast Inference from Transformers via Speculative Decoding, equation 1).

    >>> round(tokens_per_check(0.8, 3), 3), tokens_per_check(1.0, 3)
    (2.952, 4.0)
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..compiler import contiguous_bytes, product_cycles
from ..errors import ConfigError
from .device_time import device_time
from .machine import Machine, positive
from .serving import Outcome, ServingPlan, ServingTimes, outcome_of
from .work import Work

DRAFT_INPUTS = 1024
"""Inputs of the matrix that the weights of a draft without a model are counted as."""


def tokens_per_check(acceptance_rate: float, num_candidates: int) -> float:
    """Return the tokens that a check adds on average, its own one included."""
    return float(sum(acceptance_rate**accepted for accepted in range(num_candidates + 1)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draft:
    """Cost of the candidates; prompt lookup costs nothing."""

    name: str = "prompt lookup"
    candidate_s: float = 0.0
    check_s: float = 0.0
    prompt_s: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Speculation:
    """Candidates that an estimate assumes."""

    acceptance_rate: float
    """Probability that a candidate is accepted if those before it are."""
    num_candidates: int | None = None
    """Candidates of a check; None for as many as the program checks."""
    draft: Draft = Draft()

    def checked_by(self, num_tokens: int) -> Speculation:
        """Return it with a number of candidates, for a graph that checks so many tokens."""
        room = num_tokens - 1
        if self.num_candidates is not None and self.num_candidates > room:
            message = f"num_speculative_tokens={self.num_candidates}, but the compiled check takes {room} candidates."
            hint = f"Pass {room} or less, or export with extend_length={self.num_candidates + 1}."
            raise ConfigError(message, hint=hint, option="num_speculative_tokens", value=self.num_candidates, most=room)
        return dataclasses.replace(self, num_candidates=self.num_candidates or room)

    @property
    def tokens_per_check(self) -> float:
        """Tokens that a check adds on average."""
        assert self.num_candidates is not None, "a check takes a number of candidates"
        return tokens_per_check(self.acceptance_rate, self.num_candidates)

    @property
    def draft_s(self) -> float:
        """Time of the draft for a check."""
        assert self.num_candidates is not None, "a check takes a number of candidates"
        return self.draft.check_s + self.num_candidates * self.draft.candidate_s

    def outcome(self, plan: ServingPlan, times: ServingTimes) -> Outcome:
        """Return the times of requests whose steps are checks."""
        tpot_s = (times.tpot_s + self.draft_s) / self.tokens_per_check
        read = outcome_of(plan, times.ttft_s + self.draft.prompt_s, tpot_s, tpot_s)
        return dataclasses.replace(read, ttft_s=times.ttft_s)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "acceptance_rate": self.acceptance_rate,
            "num_speculative_tokens": self.num_candidates,
            "tokens_per_check": self.tokens_per_check,
            "draft": self.draft.name,
            "draft_ms": 1e3 * self.draft_s,
        }

    @property
    def assumption(self) -> str:
        """The assumption of an estimate."""
        return (
            f"{self.draft.name} proposes {self.num_candidates} candidates, of which each is accepted with probability "
            f"{self.acceptance_rate:g} as given: {self.tokens_per_check:.3g} tokens for each check (Leviathan et al. "
            f"2023, equation 1); the draft takes {1e3 * self.draft_s:.3g} ms, simulated"
        )


def choose_speculation(
    acceptance_rate: float | None, num_candidates: int | None, draft: Draft | None
) -> Speculation | None:
    """Return the speculation of a request; None where there is none."""
    if acceptance_rate is None:
        if num_candidates is not None or draft is not None:
            named = "A draft" if num_candidates is None else f"num_speculative_tokens={num_candidates}"
            message = f"{named} has no time without the share of candidates that are accepted."
            hint = "Pass acceptance_rate, for example that of model.last_speculation."
            raise ConfigError(message, hint=hint, option="acceptance_rate")
        return None
    if isinstance(acceptance_rate, bool) or not 0 <= acceptance_rate <= 1:
        message = f"acceptance_rate={acceptance_rate} is not a share from 0 to 1."
        raise ConfigError(message, hint="Pass a number such as 0.7.", option="acceptance_rate", value=acceptance_rate)
    if num_candidates is not None:
        positive("num_speculative_tokens", num_candidates)
    return Speculation(acceptance_rate=acceptance_rate, num_candidates=num_candidates, draft=draft or Draft())


def draft_of_parameters(num_parameters: int, machine: Machine) -> Draft:
    """Return a draft without a second model, such as Medusa heads, which reads so many 16-bit weights for a check."""
    if isinstance(num_parameters, bool) or not isinstance(num_parameters, int) or num_parameters < 1:
        message = f"draft_parameters={num_parameters!r} is no number of weights."
        raise ConfigError(message, hint="Pass a whole number.", option="draft_parameters", value=num_parameters)
    columns = -(-num_parameters // DRAFT_INPUTS)
    size_bytes = 2 * DRAFT_INPUTS * columns
    work = Work(
        flops=2 * DRAFT_INPUTS * columns,
        product_flops=2 * DRAFT_INPUTS * columns,
        tensor_cycles=product_cycles(1, DRAFT_INPUTS, columns),
        vector_elements=columns,
        weight_bytes=size_bytes,
        weight_rows=size_bytes / contiguous_bytes(DRAFT_INPUTS, columns, 2),
    )
    time = device_time(work, machine.rates, machine.fitted, decoder=True)
    return Draft(name=f"a draft of {num_parameters:,} weights", check_s=time.total_s)
