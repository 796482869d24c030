"""From captured entry points to one verified program: check, outline, stretch, auto-cast, merge.

program, report = compile_graphs(requests, target=target, auto_cast="none", auto_cast_type="bf16")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence

from ..core import AutoCast, AutoCastType, Choice
from ..hardware import Target
from .capture import Captured
from .ir import Program
from .passes.autocast import auto_cast as auto_cast_body
from .passes.bodies import merge, rewrite_bodies
from .passes.outline import outline
from .passes.stretch import NotUniformError, stretch
from .passes.verify import verify
from .placement import judged_calls, placed_share
from .rules.report import Report, check_graph

Recapture = Callable[[bool], Captured]
"""Captures one entry point; the argument says whether equal stacks may be shortened."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """A program, and what was decided on the way."""

    program: Program
    """All entry points."""
    reports: tuple[Report, ...]
    """The operator check of each entry point."""
    stacks: dict[str, Choice[int]]
    """How many layers of each stack were captured, and why."""
    placed_share: float = 1.0
    """Part of the FLOPs of one run of every entry point that the device runs, 0 to 1; the host runs the rest."""


def compile_graphs(
    captures: Sequence[Recapture],
    *,
    target: Target,
    auto_cast: AutoCast = "none",
    auto_cast_type: AutoCastType = "bf16",
    allow_host_ops: Collection[str] = (),
    implicit_integer_downcast: Collection[str] = (),
    on_done: Callable[[str], None] = lambda name: None,
) -> Compiled:
    """Compile entry points of one model into one program.

    Args:
        captures: one function for each entry point.
        target: what the program is for.
        auto_cast: which float32 operations are rounded.
        auto_cast_type: what they are rounded to.
        allow_host_ops: refused operators that may run on the host.
        implicit_integer_downcast: kinds of integer operators that may lose digits, see `check_graph`.
        on_done: called with the name of each entry point, for progress.

    Raises:
        CaptureError: the model's code is not static.
        UnsupportedOperatorError: the target refuses operators; all are listed.
    """
    graphs, reports = [], []
    for recapture in captures:
        captured = capture_graph(recapture)
        report = check_graph(
            captured.exported,
            target,
            allow_host_ops=allow_host_ops,
            implicit_integer_downcast=implicit_integer_downcast,
        )
        report.raise_for_refusals()
        reports.append(report)
        graphs.append((captured, recapture))
        on_done(captured.name)
    share = 1.0
    if any(report.hosted for report in reports):
        calls = [
            judged_calls(
                captured,
                target,
                allow_host_ops=allow_host_ops,
                implicit_integer_downcast=implicit_integer_downcast,
            )
            for captured, _ in graphs
        ]
        share = placed_share([call for graph in calls for call in graph])
    program, stacks = link(graphs, auto_cast=auto_cast, auto_cast_type=auto_cast_type)
    return Compiled(program=program, reports=tuple(reports), stacks=stacks, placed_share=share)


def link(
    graphs: Sequence[tuple[Captured, Recapture]], *, auto_cast: AutoCast, auto_cast_type: AutoCastType
) -> tuple[Program, dict[str, Choice[int]]]:
    """Make one program of captured entry points, which are used up, and say how many layers of each stack it took."""
    programs, stacks = [], {}
    for captured, recapture in graphs:
        program, chosen = _outlined(captured, recapture)
        programs.append(program)
        stacks.update(chosen)
    linked = verify(merge(programs), after="merge")
    if auto_cast != "none":
        linked = rewrite_bodies(linked, lambda body: auto_cast_body(body, kind=auto_cast, dtype=auto_cast_type))
        verify(linked, after="auto_cast")
    return linked, stacks


def capture_graph(recapture: Recapture) -> Captured:
    """Capture with short stacks; code that fails then, as it does if it counts its layers, is captured whole."""
    try:
        return recapture(True)
    except Exception as error:
        found = f"captured whole: to capture less fails ({type(error).__name__}: {str(error).splitlines()[0][:200]})"
    whole = recapture(False)
    stacks = [dataclasses.replace(s, captured=Choice(value=s.num_layers, reason=found)) for s in whole.stacks]
    return dataclasses.replace(whole, stacks=tuple(stacks))


def _outlined(captured: Captured, recapture: Recapture) -> tuple[Program, dict[str, Choice[int]]]:
    """Outline and stretch; a stack that does not repeat after all is captured whole."""
    program = verify(outline(captured), after="outline")
    try:
        for stack in captured.stacks:
            if stack.captured.value < stack.num_layers:
                program = verify(stretch(program, captured.name, stack), after="stretch")
    except NotUniformError as reason:
        whole = recapture(False)
        chosen = {stack.path: Choice(value=stack.num_layers, reason=str(reason)) for stack in captured.stacks}
        return verify(outline(whole), after="outline"), chosen
    return program, {stack.path: stack.captured for stack in captured.stacks}
