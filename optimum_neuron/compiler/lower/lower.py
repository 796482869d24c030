"""Make every subprogram of a program callable: choose a level, compile what is missing, load.

host = lower(program, optlevel="2")
host.functions["sub_..."]([x, weight])
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from ...core import Choice, OptLevel
from ..ir import Graph, Program
from ..serial import body_to_dict
from . import attention
from .aten import HostFunction, aten_function
from .choose import HostLevel, choose_level, probe_compiler, probe_cpu
from .inductor import compile_body, load_package
from .pool import Job, LoweringPool
from .prepare import NOTHING, Preparations, plan_preparations
from .store import package_path


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostCode:
    """Callable subprograms and how each one came to be."""

    functions: dict[str, HostFunction]
    """Subprogram name to host function."""
    choices: dict[str, Choice[HostLevel]]
    """Subprogram name to its level and the reason."""
    preparations: Preparations = NOTHING
    """What the functions expect of the weights."""
    num_compiled: int
    """Bodies that were compiled now; the others were in the store or need no compiling."""


def choose_levels(program: Program, *, optlevel: OptLevel) -> dict[str, Choice[HostLevel]]:
    """Decide the host code of every subprogram."""
    compiler = probe_compiler()
    hot = {call.subprogram for graph in program.graphs.values() if not graph.rare for call in graph.calls}
    per_token = {call.subprogram for graph in program.graphs.values() if _is_step(graph) for call in graph.calls}
    return {
        name: choose_level(
            subprogram, optlevel=optlevel, compiler=compiler, rare=name not in hot, per_token=name in per_token
        )
        for name, subprogram in program.subprograms.items()
    }


def _is_step(graph: Graph) -> bool:
    """Whether a graph takes one token of each row: the shape [rows, 1] that generation repeats."""
    first = next(iter(graph.inputs.values()), None)
    return first is not None and len(first.shape) == 2 and first.shape[1] == 1


def missing_packages(
    program: Program,
    choices: dict[str, Choice[HostLevel]],
    root: Path | None = None,
    preparations: Preparations = NOTHING,
) -> dict[str, Job]:
    """The bodies that `lower` has to compile."""
    features, jobs = probe_cpu(), {}
    for name, choice in choices.items():
        expected = preparations.of_subprogram.get(name, ())
        path = package_path(name, choice.value, features, root, expected)
        if choice.value != "aten" and not path.exists():
            body = body_to_dict(program.subprograms[name].body)
            jobs[name] = Job(body=body, level=choice.value, output=path, preparations=expected)
    return jobs


def lower(
    program: Program,
    *,
    optlevel: OptLevel,
    pool: LoweringPool | None = None,
    on_start: Callable[[int], None] = lambda num_jobs: None,
    on_done: Callable[[Job], None] = lambda job: None,
    root: Path | None = None,
) -> HostCode:
    """Return host functions for all subprograms of `program`.

    Args:
        program: what has to run.
        optlevel: "1", "2" or "3".
        pool: workers that are already running; otherwise they are started when more than one body is missing.
        on_start: called with the number of bodies that have to be compiled.
        on_done: called after each compiled body, for progress.
        root: folder of the host-code store.

    Raises:
        LoweringError: a body could not be compiled.
    """
    choices = choose_levels(program, optlevel=optlevel)
    preparations = plan_preparations(program, [name for name, choice in choices.items() if choice.value != "aten"])
    compiled = [program.subprograms[name].body for name, choice in choices.items() if choice.value != "aten"]
    if any(attention.is_in(body, probe_cpu()) for body in compiled):
        attention.load(probe_cpu().isa)  # their code looks its function up when it is loaded
    jobs = missing_packages(program, choices, root, preparations)
    on_start(len(jobs))
    for job in jobs.values():
        job.output.parent.mkdir(parents=True, exist_ok=True)
    # The longest first: two workers then finish together.
    ordered = sorted(jobs.values(), key=lambda job: -len(job.body["nodes"]))
    if pool is not None and ordered:
        pool.run(ordered, on_done)
    elif len(ordered) > 1:
        with LoweringPool(min(len(ordered), os.cpu_count() or 1)) as own:
            own.run(ordered, on_done)
    else:
        for job in ordered:
            compile_body(job.body, job.level, job.output, job.preparations)
            on_done(job)
    functions: dict[str, HostFunction] = {}
    for name, choice in choices.items():
        if choice.value == "aten":
            functions[name] = aten_function(program.subprograms[name].body)
        else:
            expected = preparations.of_subprogram.get(name, ())
            functions[name] = load_package(package_path(name, choice.value, probe_cpu(), root, expected))
    return HostCode(functions=functions, choices=choices, preparations=preparations, num_compiled=len(jobs))
