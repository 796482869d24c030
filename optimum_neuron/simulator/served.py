"""Estimate of a model that generates, from its plan: time to first token, decode steps, memory, and price.

serving_estimate(plan, machine, name="llama", kind="decoder", num_cores=cores, num_copies=copies, memory=memory, ...)
"""

from __future__ import annotations

from ..core import Choice
from .machine import Machine
from .quantity import Estimate
from .result import largest, make_estimate
from .serving import ServingPlan, serving_times


def serving_estimate(
    plan: ServingPlan,
    machine: Machine,
    *,
    name: str,
    kind: str,
    num_cores: Choice[int],
    num_copies: Choice[int],
    memory: dict[str, int],
    assumptions: tuple[str, ...],
    notes: tuple[str, ...] = (),
) -> Estimate:
    """Time a plan and put every quantity and its interval together."""
    instance, rates = machine.instance.value, machine.rates
    times = serving_times(
        plan,
        rates,
        machine.fitted,
        machine.constants.hosts[plan.stack.host],
        family=instance.family,
        num_chips=machine.num_chips(num_cores.value),
    )
    tokens = num_copies.value * times.tokens_per_s(plan)
    decode = plan.decode.total
    runs = [("prefill", plan.prefill, times.prefill), ("decode", plan.decode, times.decode)]
    if plan.encode is not None and times.encode is not None:
        runs.insert(0, ("encode", plan.encode, times.encode))
    begin_flops = sum(graph.total.product_flops for _, graph, _ in runs[:-1])
    begin_s = sum(time.total_s for _, _, time in runs[:-1])
    prefill_limit = max((time for _, _, time in runs[:-1]), key=lambda time: time.total_s).limited_by
    decode_limit = times.decode.limited_by
    answer_s = times.ttft_s + plan.output_length * times.tpot_s
    return make_estimate(
        machine,
        name=name,
        kind=kind,
        values={
            "ttft_ms": (times.ttft_s * 1e3, prefill_limit),
            "tpot_ms": (times.tpot_s * 1e3, decode_limit),
            "latency_ms": (answer_s * 1e3, decode_limit),
            "throughput_per_s": (tokens / plan.output_length, decode_limit),
            "tokens_per_s": (tokens, decode_limit),
            "hbm_bytes_per_core": (sum(memory.values()), largest(memory)),
            "hbm_bytes_per_step": (
                decode.hbm_bytes,
                "weights" if decode.weight_bytes >= decode.state_bytes else "kv_cache",
            ),
            "mfu": (begin_flops / begin_s / rates.peak_flops_per_s, prefill_limit),
            "mbu": (decode.hbm_bytes / times.decode.total_s / rates.hbm_bytes_per_s, decode_limit),
        },
        per_s=tokens,
        rate="tokens_per_s",
        same_band=("latency_ms", "throughput_per_s"),
        num_cores=num_cores,
        num_copies=num_copies,
        memory=memory,
        bounds_s={role: rates.least_s(graph.total) for role, graph, _ in runs},
        parts_s={graph.name: time.parts_s for _, graph, time in runs},
        assumptions=assumptions,
        notes=notes,
    )
