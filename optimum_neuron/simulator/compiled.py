"""Estimate of a model that generates from its graphs, and its plan: the graphs that a request would run.

A decoder has prefill and decode graphs; an encoder-decoder encodes a source before them.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import weakref
from collections.abc import Mapping

from ..base.core import AutoCast, Choice
from ..base.wording import counted
from ..compiler import Program
from ..errors import ConfigError
from .continuous import ServedPool, served_pool, simulate_requests
from .graph_choice import choose_graphs
from .machine import Machine, choose_copies
from .request import EstimateRequest
from .result import Estimate
from .serving import Outcome, ServingPlan, ServingTimes, graph_time_on, serving_cost_on, serving_estimate
from .speculation import Speculation
from .stacks import STACKS
from .work import GraphWork, as_published, work_of_program

SERVED_AS = STACKS["nxd-inference"]
"""Serving stack of compiled programs that generate: the one with this package's buckets and batches."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramCounts:
    """The graphs of a request to a program that generates."""

    program: Program
    plan: Choice[ServingPlan]
    memory: Mapping[str, int]
    """HBM of a core by category."""
    auto_cast: AutoCast
    origin: str
    """Where the graphs come from, in words."""
    num_cores: Choice[int]
    divisible: bool = False
    """Whether other numbers of cores could share it."""
    notes: tuple[str, ...] = ()

    def estimate(self, name: str, request: EstimateRequest, machine: Machine) -> Estimate:
        """Estimate the requests of one batch; with continuous batching, those that run at the same time."""
        program, plan, assumptions = self.program, self.plan.value, []
        pool = self._pool(machine) if is_paged(program) else None
        speculation, outcome = None, None
        if request.speculation is not None:
            speculation = request.speculation.checked_by(min(program.by_size("extend")))
            outcome = functools.partial(speculation.outcome, plan)
            assumptions = [speculation.assumption]
        elif pool is not None:
            outcome = functools.partial(_burst, pool, plan)
            scheduled = f"{counted(plan.concurrency, 'request')} together, scheduled as the engine does in chunks of "
            assumptions = [f"{scheduled}{pool.chunk_size} prompt tokens; {pool.cost.basis}"]
        result = serving_estimate(
            plan,
            machine,
            name=name,
            kind=kind_of_generator(program, plan.decode),
            num_cores=self.num_cores,
            num_copies=choose_copies(machine, self.num_cores.value, request.data_parallel_size),
            memory=dict(self.memory),
            assumptions=(f"{self.plan.reason}, {self.origin}", *assumptions, machine.price_source),
            notes=() if plan.encode is None else ("no published value of this class of model",),
            outcome=outcome,
        )
        spoken = None if speculation is None else speculation.to_dict()
        result = dataclasses.replace(result, served_pool=pool, speculation=spoken, divisible=self.divisible)
        return result.noted(*self.notes)

    def _pool(self, machine: Machine) -> ServedPool:
        """Return the sizes and times of the scheduler's pool."""
        cores, auto_cast = self.num_cores.value, self.auto_cast
        return served_pool(
            self.program,
            self.memory,
            call_s=functools.partial(call_time_on, machine, self.program, num_cores=cores, auto_cast=auto_cast),
            cost=serving_cost_on(machine, SERVED_AS),
            num_prompt=self.plan.value.input_length,
            num_cached=self.plan.value.padding.cached_tokens,
            num_answer=self.plan.value.output_length,
        )


def serving_plan_of(program: Program, request: EstimateRequest, *, auto_cast: AutoCast) -> Choice[ServingPlan] | None:
    """Choose the graphs of a request; None where the program does not generate."""
    if not generates(program):
        return None
    graphs = choose_graphs(program, request)
    step = graphs.decode if request.speculation is None else _check_graph(program, request.speculation)
    rows = max(spec.shape[0] for spec in program.graphs[step].inputs.values() if spec.shape)
    arriving = min(request.concurrency or rows, rows)

    def work_of(graph: str) -> GraphWork:
        return work_of_call(program, graph, auto_cast)

    plan = ServingPlan(
        stack=SERVED_AS,
        encode=None if graphs.encode is None else work_of(graphs.encode),
        prefill=work_of(graphs.prefill),
        num_prefills=arriving * max(graphs.num_chunks - 1, 1) if graphs.num_chunks else 1,
        prefill_end=None if graphs.prefill_end is None else work_of(graphs.prefill_end),
        extends=tuple((work_of(name), count) for name, count in graphs.extends.items()),
        decode=work_of(step),
        steps=() if request.speculation else tuple((work_of(name), count) for name, count in graphs.steps.items()),
        batch_size=rows,
        concurrency=arriving,
        output_length=graphs.output_length,
        padding=graphs.padding,
    )
    names = [name for name in (graphs.encode, graphs.prefill) if name is not None]
    reason = f"its own graphs {', '.join(names)} and {step}: {rows} rows, {plan.input_length} tokens or frames that are"
    return Choice(value=plan, reason=f"{reason} read, {plan.output_length} output tokens")


def _check_graph(program: Program, speculation: Speculation) -> str:
    """Return the graph that checks the candidates."""
    checks = program.by_size("extend")
    if not checks or is_paged(program):
        what = "continuous batching" if checks else "a model without a graph that checks several tokens"
        message = f"acceptance_rate={speculation.acceptance_rate} has no effect on an estimate of {what}."
        hint = "Remove it, or estimate a decoder that was exported with speculation=True."
        raise ConfigError(message, hint=hint, option="acceptance_rate")
    return checks[min(checks)]  # longer ones read prompts


def call_time_on(machine: Machine, program: Program, graph: str, *, num_cores: int, auto_cast: AutoCast) -> float:
    """Return the seconds that a call of a graph takes on a machine, with its copies."""
    work = work_of_call(program, graph, auto_cast)
    return graph_time_on(machine, work, SERVED_AS, num_cores=num_cores).total_s + machine.copies_s(work.total)


def _burst(pool: ServedPool, plan: ServingPlan, times: ServingTimes) -> Outcome:
    """Times of requests that arrive together; an answer of one token takes a step's time for it."""
    requests = simulate_requests(pool, [0.0] * plan.concurrency)
    answer_s = max(request.latency_s or 0.0 for request in requests)
    tpots_s = [request.tpot_s for request in requests if request.tpot_s is not None]
    return Outcome(
        ttft_s=max(request.ttft_s or 0.0 for request in requests),
        tpot_s=sum(tpots_s) / len(tpots_s) if tpots_s else times.tpot_s,
        answer_s=answer_s,
        tokens_per_s=plan.concurrency * plan.output_length / answer_s,
    )


_works: dict[tuple[int, str, AutoCast], tuple[weakref.ref[Program], GraphWork]] = {}


def work_of_call(program: Program, graph: str, auto_cast: AutoCast) -> GraphWork:
    """Work of one call; counted once for each program, whatever number of cores it is on."""
    key = (id(program), graph, auto_cast)
    if key not in _works or _works[key][0]() is not program:
        forget = weakref.ref(program, lambda _: _works.pop(key, None))
        _works[key] = forget, work_of_entry(program, graph, auto_cast=auto_cast)
    return _works[key][1]


def work_of_entry(program: Program, graph_name: str, *, auto_cast: AutoCast) -> GraphWork:
    """Work of one run of an entry point, as the constants of its class of model are fitted on it."""
    work = work_of_program(program, graph_name, auto_cast=auto_cast)
    return as_published(work) if generates(program) else work


def kind_of_generator(program: Program, work: GraphWork) -> str:
    """Class of the estimates of a program that generates; `work` is of one of its graphs."""
    if program.by_size("encode"):
        return "seq2seq"
    if any(re.search(r"(^|\.)(experts|router)(\.|$)", step.module_path) for step in work.steps):
        return "mixture"
    return "hybrid" if any("recurrent" in name for name in program.states) else "decoder"


def is_paged(program: Program) -> bool:
    """Return whether the cache of a program is a pool of blocks."""
    return any("block_table" in graph.inputs for graph in program.graphs.values())


def generates(program: Program) -> bool:
    """Return whether a program has a prefill and a decode graph."""
    return bool(program.by_size("prefill") and program.by_size("decode"))
