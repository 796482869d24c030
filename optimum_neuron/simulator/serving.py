"""From device to user for models that generate: the number of graph runs of a request, and the host overhead.

    plan = plan_serving(sizes, stack, layout, batch_size=8, sequence_length=4096, output_length=256)
    times = serving_times(plan, rates, fitted, host)

A plan is work only, so that the same plan can be timed with other constants.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base.core import Choice
from ..hardware import is_first_of_instance
from ..runtime import ServingCost
from .device_time import CoreRates, DeviceTime, device_time
from .fitted import Constants, CoreConstants, HostConstants
from .machine import Machine
from .result import Estimate, largest, make_estimate, scale_of
from .rows import ServedRows
from .stacks import Padding, Stack, bucket, steps_by_bucket
from .work import DecoderSizes, GraphWork, Layout, decode_work, prefill_work

LARGE_GRAPH_CYCLES = 2.5e8
"""Tensor-engine cycles of a prompt's graph from which compilers before the fused attention kernel ran out of
instructions and had to optimize less. A judgment: published times of prompts jump between 2.2e8 and 3.0e8."""
LARGE_GRAPH_FACTOR = 1.5
"""Slowdown of such a graph: -O1 costs "about 50 %" (Transformers NeuronX release notes, 0.7.84). Published samples with
the layout BSH do not need it, and their times do not have it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingPlan:
    """Device work of a request with `input_length` prompt tokens and `output_length` output tokens."""

    stack: Stack
    prefill: GraphWork
    encode: GraphWork | None = None
    """One run of an encoder before it, where the model has one."""
    num_prefills: int
    """Runs of `prefill` until every row has its first token."""
    prefill_end: GraphWork | None = None
    """Run behind them for each request, where prompts are read in chunks and the last one is shorter."""
    extends: tuple[tuple[GraphWork, int], ...] = ()
    """Graphs that read the rest of prompts of all rows, which are longer than `prefill`, and their numbers of runs."""
    decode: GraphWork
    """One step, at the median context of an answer."""
    steps: tuple[tuple[GraphWork, int], ...] = ()
    """Every graph of the steps of an answer, and its number of steps; empty where all are `decode`."""
    batch_size: int
    """Rows of a step."""
    concurrency: int
    """Requests that arrive together, at most the batch."""
    output_length: int
    padding: Padding
    batched_tokens: int | None = None
    """Tokens of one step of a server, its prompts included; None for no limit."""

    @property
    def input_length(self) -> int:
        """Tokens of a prompt."""
        return self.padding.input_tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """Simulated times of the requests of a plan, as a user sees them."""

    ttft_s: float
    """Until every request that arrived has its first token."""
    tpot_s: float
    """Between tokens."""
    answer_s: float
    """Until every request has its answer."""
    tokens_per_s: float
    """Output tokens of one replica, prompts included in the time."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingTimes:
    """Simulated times of a plan."""

    ttft_s: float
    """Until every request that arrived has its first token."""
    tpot_s: float
    """Between tokens, at the median context of an answer."""
    mean_tpot_s: float
    """The mean of all steps of an answer, whose graphs grow with it."""
    prefill: DeviceTime
    """One run of the prefill graph on the device."""
    encode: DeviceTime | None
    """One run of the encoder on the device."""
    decode: DeviceTime

    def outcome(self, plan: ServingPlan) -> Outcome:
        """Times of requests that are answered in one batch."""
        return outcome_of(plan, self.ttft_s, self.tpot_s, self.mean_tpot_s)

    def scaled(self, *, ttft: float, tpot: float) -> ServingTimes:
        """The same requests, whose times until the first token and between tokens are so many times as long."""
        return dataclasses.replace(
            self, ttft_s=ttft * self.ttft_s, tpot_s=tpot * self.tpot_s, mean_tpot_s=tpot * self.mean_tpot_s
        )

    def tokens_per_s(self, plan: ServingPlan) -> float:
        """Output tokens of one replica, prompts included in the time."""
        return self.outcome(plan).tokens_per_s


def outcome_of(plan: ServingPlan, ttft_s: float, tpot_s: float, mean_tpot_s: float) -> Outcome:
    """Return the outcome of requests that are answered in one batch, at these times."""
    answer_s = ttft_s + plan.output_length * mean_tpot_s
    per_s = plan.concurrency * plan.output_length / answer_s
    return Outcome(ttft_s=ttft_s, tpot_s=tpot_s, answer_s=answer_s, tokens_per_s=per_s)


def plan_serving(
    sizes: DecoderSizes,
    stack: Stack,
    layout: Layout,
    *,
    batch_size: int,
    sequence_length: int,
    input_length: int,
    output_length: int,
    concurrency: int | None = None,
    prefill_buckets: Sequence[int] = (),
) -> ServingPlan:
    """Decide which graphs run, by the rules of the stack, or with its own `prefill_buckets`."""
    arriving = min(concurrency or batch_size, batch_size)
    padded = stack.pads_prompt if batch_size > 1 else stack.pads_single
    prompt = sequence_length if padded else min(bucket(input_length), bucket(sequence_length))
    prompt = min((length for length in prefill_buckets if length >= input_length), default=prompt)
    rows = 1 if stack.one_by_one else batch_size
    median = input_length + output_length // 2 + 1

    def slots_of(tokens: int) -> int:
        return sequence_length if stack.pads_cache else min(bucket(tokens), bucket(sequence_length))

    counts = steps_by_bucket(input_length, output_length, slots_of)
    decodes = {
        slots: decode_work(sizes, layout, batch_size=batch_size, slots=slots) for slots in {*counts, slots_of(median)}
    }
    return ServingPlan(
        stack=stack,
        prefill=prefill_work(sizes, layout, batch_size=rows, tokens=prompt),
        num_prefills=arriving if stack.one_by_one else 1,
        decode=decodes[slots_of(median)],
        steps=tuple((decodes[slots], count) for slots, count in counts.items()),
        batch_size=batch_size,
        concurrency=arriving,
        output_length=output_length,
        padding=Padding(input_tokens=input_length, prefill_tokens=prompt, decode_slots=slots_of(median)),
        batched_tokens=None if stack.batched_tokens is None else max(stack.batched_tokens, sequence_length),
    )


def serving_times(
    plan: ServingPlan,
    rates: CoreRates,
    fitted: CoreConstants,
    host: HostConstants,
    *,
    family: str,
    num_chips: int = 1,
    network_bytes_per_s: Mapping[int, float] | None = None,
    copy_bytes_per_s: float = math.inf,
) -> ServingTimes:
    """Time a plan.

    Args:
        plan: device work of a request.
        rates: of a core.
        fitted: constants of its generation.
        host: overhead of the serving stack.
        family: of the instance, whose host processor prepares prompts.
        num_chips: chips that have the cores of a stage.
        network_bytes_per_s: as in `device_time`, by stage.
        copy_bytes_per_s: rate at which the host reads the results of a step.
    """
    stack, network = plan.stack, network_bytes_per_s or {}
    run = functools.partial(
        graph_time, rates=rates, fitted=fitted, stack=stack, num_chips=num_chips, network_bytes_per_s=network
    )
    encode = None if plan.encode is None else run(plan.encode)
    prefill, decode = run(plan.prefill), run(plan.decode)
    if not (stack.flash or stack.batch_first) and plan.prefill.total.tensor_cycles > LARGE_GRAPH_CYCLES:
        prefill = prefill.slower(LARGE_GRAPH_FACTOR)
    begin_s = (0.0 if encode is None else encode.total_s) + plan.num_prefills * prefill.total_s
    if plan.prefill_end is not None:
        begin_s += plan.concurrency * run(plan.prefill_end).total_s
    begin_s += sum(count * run(graph).total_s for graph, count in plan.extends)

    def step_s(graph: GraphWork, device: DeviceTime) -> float:
        return device.total_s + token_host_s(host, plan.concurrency) + graph.total.host_bytes / copy_bytes_per_s

    tpot_s = step_s(plan.decode, decode)
    weighted = [count * step_s(graph, run(graph)) for graph, count in plan.steps]
    return ServingTimes(
        ttft_s=begin_s + prompt_host_s(host, family),
        tpot_s=tpot_s,
        mean_tpot_s=sum(weighted) / sum(count for _, count in plan.steps) if plan.steps else tpot_s,
        prefill=prefill,
        encode=encode,
        decode=decode,
    )


def graph_time(
    graph: GraphWork,
    *,
    rates: CoreRates,
    fitted: CoreConstants,
    stack: Stack,
    num_chips: int,
    network_bytes_per_s: Mapping[int, float],
) -> DeviceTime:
    """Time of one run of a graph of a decoder, whose stages run one after the other."""
    options: dict[str, Any] = {"num_chips": num_chips, "tiled": stack.tiled, "flash": stack.flash}
    times = [
        device_time(work, rates, fitted, decoder=True, network_bytes_per_s=network_bytes_per_s.get(stage), **options)
        for stage, work in enumerate(graph.by_stage)
    ]
    return functools.reduce(operator.add, times)


def graph_time_on(machine: Machine, graph: GraphWork, stack: Stack, *, num_cores: int) -> DeviceTime:
    """Time of one run of a graph on a machine, by all cores of a replica."""
    links = _links(machine, num_cores, len(graph.by_stage))
    return graph_time(graph, rates=machine.rates, fitted=machine.fitted, stack=stack, **links)


def _links(machine: Machine, num_cores: int, num_stages: int) -> dict[str, Any]:
    """Chips of a stage, and the network of stages that begin on another instance."""
    instance, group_size = machine.instance.value, num_cores // num_stages
    rate = machine.network_bytes_per_s(group_size)
    first = [stage for stage in range(num_stages) if is_first_of_instance(instance, stage, num_stages)]
    network = {} if rate is None else dict.fromkeys(first, rate)
    return {"num_chips": machine.num_chips(group_size), "network_bytes_per_s": network}


def _times_on(plan: ServingPlan, machine: Machine, num_cores: int) -> ServingTimes:
    """Time a plan with so many cores for a replica."""
    return serving_times(
        plan,
        machine.rates,
        machine.fitted,
        machine.constants.hosts[plan.stack.host],
        family=machine.instance.value.family,
        copy_bytes_per_s=machine.constants.copy_bytes_per_s,
        **_links(machine, num_cores, len(plan.decode.by_stage)),
    )


def served_rows(plan: ServingPlan, times: ServingTimes, cost: ServingCost, *, batched_tokens: int | None) -> ServedRows:
    """Return how a stack that reads prompts one by one serves the requests of a plan that takes these times."""
    return ServedRows(
        num_rows=plan.batch_size,
        prompt_s=times.prefill.total_s,
        # The host's part of a step depends on the rows that run.
        step_s=times.mean_tpot_s - cost.step_s - plan.concurrency * cost.row_s,
        cost=cost,
        num_prompt=plan.input_length,
        num_answer=plan.output_length,
        batched_tokens=batched_tokens,
    )


def serving_cost_on(machine: Machine, stack: Stack) -> ServingCost:
    """Return the time of the host and of copies around the graphs of a decoder that serves requests."""
    basis = f"simulated on {machine.target.name} with the host path of {stack.name} and constants version "
    basis += str(machine.constants.version)
    return host_cost(machine.constants, stack, family=machine.instance.value.family, basis=basis)


def host_cost(constants: Constants, stack: Stack, *, family: str, basis: str) -> ServingCost:
    """Return the same for any constants, on an instance of a family."""
    host = constants.hosts[stack.host]
    return ServingCost(
        chunk_s=prompt_host_s(host, family),
        step_s=token_host_s(host, 0),
        row_s=token_host_s(host, 1) - token_host_s(host, 0),
        copy_bytes_per_s=constants.copy_bytes_per_s,
        basis=basis,
    )


def prompt_host_s(host: HostConstants, family: str) -> float:
    """Host overhead of a batch's prompts, on an instance of that family."""
    return host.prefill_ms.get(family, host.prefill_ms[""]) * 1e-3


def token_host_s(host: HostConstants, rows: int) -> float:
    """Host overhead of a step with that many rows."""
    return (host.token_ms + rows * host.row_ms) * 1e-3


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
    outcome: Callable[[ServingTimes], Outcome] | None = None,
) -> Estimate:
    """Time a plan and put every quantity and its interval together.

    `outcome` returns what requests see where they are not answered in one batch, token by token.
    """
    rates, num_stages = machine.rates, len(plan.decode.by_stage)
    factors = {name: scale_of(machine, kind, f"{name}_ms") for name in ("ttft", "tpot")}
    times = _times_on(plan, machine, num_cores.value).scaled(**factors)
    seen = times.outcome(plan) if outcome is None else outcome(times)
    tokens = num_copies.value * seen.tokens_per_s
    decode = plan.decode.total
    runs = [("prefill", plan.prefill, times.prefill), ("decode", plan.decode, times.decode)]
    if plan.encode is not None and times.encode is not None:
        runs.insert(0, ("encode", plan.encode, times.encode))
    before = runs[:-1]  # latency of a step
    begin_flops = sum(graph.total.product_flops for _, graph, _ in before)
    begin_s = sum(time.total_s for _, _, time in before)
    prefill_limit = max((time for _, _, time in before), key=lambda time: time.total_s).limited_by
    decode_limit = times.decode.limited_by
    read = "weights" if decode.weight_bytes >= decode.state_bytes else "kv_cache"
    result = make_estimate(
        machine,
        name=name,
        kind=kind,
        values={
            "ttft_ms": (seen.ttft_s * 1e3, prefill_limit),
            "tpot_ms": (seen.tpot_s * 1e3, decode_limit),
            "latency_ms": (seen.answer_s * 1e3, decode_limit),
            "throughput_per_s": (tokens / plan.output_length, decode_limit),
            "tokens_per_s": (tokens, decode_limit),
            "hbm_bytes_per_core": (sum(memory.values()), largest(memory)),
            "hbm_bytes_per_step": (decode.hbm_bytes, read),
            # While one stage runs, the cores of the others wait.
            "mfu": (begin_flops / begin_s / rates.peak_flops_per_s / num_stages, prefill_limit),
            "mbu": (decode.hbm_bytes / times.decode.total_s / rates.hbm_bytes_per_s / num_stages, decode_limit),
        },
        per_s=tokens,
        rate="tokens_per_s",
        same_band=("latency_ms", "throughput_per_s"),
        num_cores=num_cores,
        num_copies=num_copies,
        memory=memory,
        bounds_s={role: rates.least_s(graph.total) for role, graph, _ in runs},
        parts_s={graph.name: time.parts_s for _, graph, time in runs},
        device_s={graph.name: time.total_s for _, graph, time in runs},
        assumptions=assumptions,
        notes=notes,
    )
    rows, cost = None, serving_cost_on(machine, plan.stack)
    if plan.stack.one_by_one:
        rows = served_rows(plan, times, cost, batched_tokens=plan.batched_tokens)
    return dataclasses.replace(result, padding=plan.padding, batch_size=plan.batch_size, served_rows=rows)
