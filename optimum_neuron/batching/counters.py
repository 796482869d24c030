"""Counts of what an engine did, and gauges of what it does, by names that Prometheus takes."""

from __future__ import annotations

import dataclasses

from .request import SimulatedTimes


@dataclasses.dataclass
class Counters:
    """Totals since the engine began."""

    requests_finished_total: int = 0
    requests_failed_total: int = 0
    requests_cancelled_total: int = 0
    prompt_tokens_total: int = 0
    """Tokens of prompts, shared ones included."""
    shared_tokens_total: int = 0
    """Tokens of prompts that an earlier request had computed."""
    answer_tokens_total: int = 0
    chunks_total: int = 0
    steps_total: int = 0
    checks_total: int = 0
    """Checks of a request's candidates; one call may do several."""
    candidate_tokens_total: int = 0
    """Tokens that drafts proposed, and checks saw."""
    accepted_tokens_total: int = 0
    """Candidates that became part of an answer."""
    preemptions_total: int = 0
    scheduling_seconds_total: float = 0.0
    """Time of planning and bookkeeping."""
    sampling_seconds_total: float = 0.0
    draft_seconds_total: float = 0.0
    """Time of proposing candidates."""
    chunk_seconds_total: float = 0.0
    step_seconds_total: float = 0.0
    simulated_seconds_total: float = 0.0
    """Simulated time in which the device and the host around it worked."""
    untimed_calls_total: int = 0
    """Calls whose simulated time cannot be computed; simulated times are without them."""
    simulated_ttft_seconds_total: float = 0.0
    """Simulated time to the first token, of all finished requests together."""
    simulated_tpot_seconds_total: float = 0.0
    """Simulated time per output token, the same."""
    simulated_latency_seconds_total: float = 0.0
    """Simulated time to the last token, the same."""

    def add_times(self, times: SimulatedTimes) -> None:
        """Add the simulated times of a request that is finished."""
        self.simulated_ttft_seconds_total += times.ttft_s or 0.0
        self.simulated_tpot_seconds_total += times.tpot_s or 0.0
        self.simulated_latency_seconds_total += times.latency_s or 0.0

    def to_dict(self) -> dict[str, float]:
        """Return the counts by name."""
        return dataclasses.asdict(self)
