"""A capacity plan: what a configuration on an instance does with a trace of requests, simulated.

    plan = plan_capacity("smollm2", poisson_trace(2.0, num_requests=1000, num_prompt=512, num_answer=128))
    plan.numbers["p99_ttft_ms"]

The model is compiled for continuous batching, as `optimum-cli neuron serve` does, and its times are those of
`estimate`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ...base.core import Choice
from ...base.wording import counted
from ...errors import ConfigError
from ...options.option import source_options
from ..continuous import ServedPool
from ..entry import estimate, is_compiled, source_of
from ..machine import choose_machine, positive
from ..result import Estimate
from .over_time import over_time
from .replay import replay_trace
from .report import report_of
from .slo import SLO
from .trace import Trace

SERVED_OPTIONS: dict[str, Any] = {"continuous_batching": True, "batch_size": 8}
"""Options of a decoder that is exported for serving, unless others are given."""
LENGTH_STEP = 32
"""Compiled lengths that a trace decides are multiples of it, the default size of a cache block."""
ENDS = ("value", "low", "high")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CapacityPlan:
    """A served trace on one configuration. Every number is simulated."""

    estimate: Estimate
    """Of one request at a time, with the instance, the cores of a replica, and the price."""
    trace: Trace
    sequence_length: Choice[int]
    num_replicas: Choice[int]
    num_instances: int
    """Instances that hold the replicas."""
    numbers: Mapping[str, Any] = dataclasses.field(hash=False)
    """By vLLM's names; see `report_of`."""
    interval: Mapping[str, tuple[float, float]] = dataclasses.field(hash=False)
    """Numbers at the fast and the slow end of the estimate's 80 % interval."""
    slo: SLO | None
    over_time: Sequence[Mapping[str, Any]] = dataclasses.field(hash=False)
    """The replay in equal spans of time; see `over_time`."""
    host_s: float
    """Seconds that this host took to replay the trace."""
    simulated: bool = True

    @property
    def pool(self) -> ServedPool:
        """Sizes and times of a replica."""
        assert self.estimate.served_pool is not None, "checked when the plan was made"
        return self.estimate.served_pool

    @property
    def usd_per_h(self) -> float | None:
        """Price of all instances; None if it is not published."""
        return None if self.estimate.usd_per_h is None else self.num_instances * self.estimate.usd_per_h

    @property
    def configuration(self) -> dict[str, int]:
        """Options of the export that the plan is for."""
        return {
            "tensor_parallel_size": self.estimate.num_cores.value,
            "batch_size": self.pool.num_rows,
            "sequence_length": self.sequence_length.value,
            "prefill_chunk_size": self.pool.chunk_size,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with vLLM's numbers at the top."""
        return {
            "simulated": True,
            "model": self.estimate.model,
            "instance": self.estimate.instance.to_dict(),
            "target": self.estimate.target,
            "num_instances": self.num_instances,
            "num_replicas": self.num_replicas.to_dict(),
            "num_cores": self.estimate.num_cores.to_dict(),
            "sequence_length": self.sequence_length.to_dict(),
            "configuration": self.configuration,
            "usd_per_h": self.usd_per_h,
            "trace": self.trace.to_dict(),
            "slo": None if self.slo is None else self.slo.to_dict(),
            **self.numbers,
            "interval": {name: list(ends) for name, ends in self.interval.items()},
            "over_time": [dict(one) for one in self.over_time],
            "host_s": self.host_s,
            "assumptions": [*self.estimate.assumptions, *_assumptions(self.pool, self.num_replicas.value)],
            "notes": [*self.trace.notes, *self.estimate.notes],
        }

    def _repr_html_(self) -> str:
        from ...pages import embedded, plan_page

        return embedded(plan_page(self.to_dict()))


def plan_capacity(
    model: Any,
    trace: Trace,
    *,
    instance: str | None = None,
    num_replicas: int | None = None,
    price: float | None = None,
    slo: SLO | None = None,
    max_queue_size: int | None = None,
    **options: Any,
) -> CapacityPlan:
    """Replay a trace on one configuration.

    Args:
        model: folder or id of a decoder, transformers configuration, or folder of an export with continuous batching.
        trace: requests, see `read_trace` and `poisson_trace`.
        instance: name of an instance; None as elsewhere in this package.
        num_replicas: replicas that share the requests, on as many instances as they take; None for one full instance.
        price: US dollars for an hour of one instance; None for the published on-demand price.
        slo: objective for goodput.
        max_queue_size: requests that may wait at a replica; more are rejected. None: any number.
        **options: as for `estimate`: options of an export, `tensor_parallel_size`, `sequence_length`, and `dtype`.

    Raises:
        ConfigError: the trace has no arrivals, an option is not supported, or the model has no continuous batching.
        DeviceMemoryError: the model does not fit the instance.

    Example:
        ```python
        from transformers import LlamaConfig
        from optimum_neuron.simulator import plan_capacity, poisson_trace

        config = LlamaConfig(
            num_hidden_layers=2, hidden_size=64, intermediate_size=128, num_attention_heads=4, vocab_size=256
        )
        trace = poisson_trace(20.0, num_requests=50, num_prompt=24, num_answer=8)
        plan = plan_capacity(config, trace, instance="inf2.xlarge", batch_size=2)
        assert plan.simulated and plan.numbers["completed"] == 50
        ```
    """
    require_arrivals(trace)
    served_options, length = served_as(model, trace, options)
    single = estimate(model, instance=instance, price=price, **mean_lengths(trace, length.value), **served_options)
    pool = single.served_pool
    if pool is None:
        message = f"{single.model} has no continuous batching, so it cannot serve a trace."
        hint = "Export it with continuous_batching=True, or pass the checkpoint."
        raise ConfigError(message, hint=hint, option="continuous_batching")
    length = length if length.value else Choice(value=max(pool.step_s), reason="compiled length of the export")
    replicas = _replicas(single, num_replicas)
    room = choose_machine(single.instance.value).num_logical_cores // single.num_cores.value
    num_instances = -(-replicas.value // room)
    usd = None if single.usd_per_h is None else num_instances * single.usd_per_h
    latency = single.quantities["latency_ms"]
    spans: list[dict[str, Any]] = []
    started, ends = time.perf_counter(), {}
    for end in ENDS:
        slower = getattr(latency, end) / latency.value
        served = replay_trace(pool, trace, num_replicas=replicas.value, max_queue_size=max_queue_size, slower=slower)
        ends[end] = report_of(served, slo=slo, usd_per_h=usd)
        spans = over_time(served) if end == "value" else spans
    host_s = (time.perf_counter() - started) / len(ENDS)
    return CapacityPlan(
        estimate=single,
        trace=trace,
        sequence_length=length,
        num_replicas=replicas,
        num_instances=num_instances,
        numbers=ends["value"],
        interval={
            name: (ends["low"][name], ends["high"][name])
            for name, value in ends["value"].items()
            if isinstance(value, float) and None not in (ends["low"][name], ends["high"][name])
        },
        slo=slo,
        over_time=spans,
        host_s=host_s,
    )


def require_arrivals(trace: Trace) -> None:
    """Check that the requests of a trace have times of arrival."""
    if not trace.has_arrivals:
        message = f"The requests of {trace.source} have no time of arrival."
        hint = "Pass a rate of arrivals, for example --request_rate 2."
        raise ConfigError(message, hint=hint, option="request_rate", value=None)


def served_as(model: Any, trace: Trace, options: Mapping[str, Any]) -> tuple[dict[str, Any], Choice[int]]:
    """Return the options of a model that serves a trace, and its compiled length; 0 for that of an export."""
    options = dict(options)
    if is_compiled_model(model):
        return options, Choice(value=0, reason="the export's")
    given = options.get("sequence_length")
    if given is not None:
        length = Choice(value=positive("sequence_length", given), reason=f"sequence_length={given}")
    else:
        from ...kinds.decoder import num_positions

        config = source_of(model, source_options(options)).config
        longest = -(-trace.longest // LENGTH_STEP) * LENGTH_STEP
        limit = num_positions(config, longest)
        reason = f"holds the longest request, {trace.longest} tokens"
        if longest > limit:
            reason = f"positions of the model; the longest request has {trace.longest} tokens"
        length = Choice(value=min(longest, limit), reason=reason)
    return {**SERVED_OPTIONS, **options, "sequence_length": length.value}, length


def is_compiled_model(model: Any) -> bool:
    """Return whether a model is an exported folder or a NEFF file."""
    from pathlib import Path

    return isinstance(model, (str, Path)) and is_compiled(Path(model))


def mean_lengths(trace: Trace, sequence_length: int) -> dict[str, Any]:
    """Return the lengths of an estimate: the means of a trace, within the compiled length if it is known."""
    prompt, answer = (max(round(trace.mean(name)), 1) for name in ("num_prompt", "num_answer"))
    if sequence_length:
        prompt = min(prompt, max(sequence_length - 1, 1))
        answer = min(answer, sequence_length - prompt)
    return {"input_length": prompt, "output_length": max(answer, 1)}


def _replicas(single: Estimate, num_replicas: int | None) -> Choice[int]:
    if num_replicas is None:
        return single.num_copies
    return Choice(value=positive("num_replicas", num_replicas), reason=f"num_replicas={num_replicas}")


def _assumptions(pool: ServedPool, num_replicas: int) -> list[str]:
    shared = f"{counted(num_replicas, 'replica')}; a request goes to the one with the fewest requests"
    times = "times without network and HTTP; no prefix is shared; answers have their full length"
    return [f"the scheduler of continuous batching, request by request: {shared}", times]
