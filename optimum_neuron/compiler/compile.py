"""From modules to one verified program: capture, check, outline, stretch, cut at exchanges, merge, auto-cast, stages.

compiled = compile_graphs(captures, target=target, auto_cast="none", auto_cast_type="bf16")

`compile_graphs` is the whole way, `capture_graphs` and `link` are its halves: a check counts calls between them.

Prompts of a decoder are two graphs, with logits of the last token or of all. They differ behind the last layer only, so
both are captured in one run of the model, and each keeps what its own results need:

    prefill = part_of(both, name="prefill_16", role="prefill", outputs={"logits": "prefill.logits"})
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from ..base.core import AutoCast, AutoCastType, Choice
from ..errors import CaptureError
from ..hardware import Target, kernels_for
from ..upstream.torch import use_lazy_graph_module
from .capture import Captured, drop_unused
from .ir import Program, Role
from .passes import (
    NotUniformError,
    auto_cast as auto_cast_body,
    cut_at_exchanges,
    divide_into_stages,
    merge,
    outline,
    return_layers,
    rewrite_bodies,
    stretch,
    verify,
)
from .placement import judged_calls, placed_share
from .rules import Report, check_graph

Recapture = Callable[[bool], Captured]
"""Captures one entry point; the argument says whether equal stacks may be shortened."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CapturedGraph:
    """A captured entry point, and how to capture it again."""

    captured: Captured
    """Graph of the distinct layers."""
    recapture: Recapture
    """Captures it whole, for stacks that do not repeat."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """A program, and the decisions made on the way."""

    program: Program
    """All entry points."""
    reports: tuple[Report, ...]
    """The operator check of each entry point; empty if it was left out."""
    stacks: dict[str, Choice[int]]
    """Number of captured layers of each stack, with the reason."""
    placed_share: float = 1.0
    """Part of the FLOPs of one run of every entry point that the device runs, 0 to 1; the host runs the rest."""


def compile_graphs(
    captures: Sequence[Recapture],
    *,
    target: Target | None,
    auto_cast: AutoCast = "none",
    auto_cast_type: AutoCastType = "bf16",
    allow_host_ops: Collection[str] = (),
    implicit_integer_downcast: Collection[str] = (),
    num_stages: int = 1,
    stages: Mapping[str, int] = MappingProxyType({}),
    on_done: Callable[[str], None] = lambda name: None,
) -> Compiled:
    """Compile entry points of one model into one program.

    Args:
        target: Compile target; None leaves the operator check out.
        allow_host_ops: unsupported operators that may run on the host.
        implicit_integer_downcast: kinds of integer operators that may lose digits, see `check_graph`.
        num_stages: Pipeline stages that the layers are divided into.
        stages: stage of each cut module, in place of layers.
        on_done: called with the name of each entry point, for progress.
    """
    allowed: Any = {"allow_host_ops": allow_host_ops, "implicit_integer_downcast": implicit_integer_downcast}
    reports: list[Report] = []

    def check(captured: Captured) -> None:
        if target is not None:
            report = check_graph(captured.exported, target, **allowed)
            report.raise_for_refusals()
            reports.append(report)
        on_done(captured.name)

    with kernels_for(target):
        graphs = capture_graphs(captures, on_captured=check)
    share = 1.0
    if target is not None and any(report.hosted for report in reports):
        share = placed_share([call for graph in graphs for call in judged_calls(graph.captured, target, **allowed)])
    program, stacks = link(
        graphs, auto_cast=auto_cast, auto_cast_type=auto_cast_type, num_stages=num_stages, stages=stages
    )
    return Compiled(program=program, reports=tuple(reports), stacks=stacks, placed_share=share)


def capture_graphs(
    captures: Sequence[Recapture],
    *,
    on_captured: Callable[[Captured], None],
    on_error: Callable[[CaptureError], None] | None = None,
) -> list[CapturedGraph]:
    """Capture entry points one after the other; an exception from `on_captured` ends the capture.

    `on_error` is called for each entry point whose code is not static, which is left out; None raises the error.
    """
    graphs = []
    for recapture in captures:
        try:
            captured = _captured(recapture)
        except CaptureError as error:
            if on_error is None:
                raise
            on_error(error)
        else:
            on_captured(captured)
            graphs.append(CapturedGraph(captured=captured, recapture=recapture))
    return graphs


def link(
    graphs: Sequence[CapturedGraph],
    *,
    auto_cast: AutoCast,
    auto_cast_type: AutoCastType,
    num_stages: int = 1,
    stages: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Program, dict[str, Choice[int]]]:
    """Make one program of captured entry points, which are used up; also return the captured layers of each stack."""
    programs, stacks = [], {}
    for graph in graphs:
        program, chosen = _outlined(graph.captured, graph.recapture)
        program = verify(
            return_layers(program, graph.captured.name, graph.captured.layer_results), after="return_layers"
        )
        programs.append(verify(cut_at_exchanges(program), after="cut_at_exchanges"))
        stacks.update(chosen)
    linked = verify(merge(programs), after="merge")
    if auto_cast != "none":
        linked = rewrite_bodies(linked, lambda body: auto_cast_body(body, kind=auto_cast, dtype=auto_cast_type))
        verify(linked, after="auto_cast")
    return verify(divide_into_stages(linked, num_stages, stages=stages), after="divide_into_stages"), stacks


def _captured(recapture: Recapture) -> Captured:
    """Capture with short stacks; code that fails then, as it does if it counts its layers, is captured whole."""
    try:
        return recapture(True)
    except Exception as error:
        cause = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    whole = recapture(False)
    reason = f"captured whole: to capture less fails ({cause})"
    stacks = [dataclasses.replace(s, captured=Choice(value=s.num_layers, reason=reason)) for s in whole.stacks]
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


_CASTS = (torch.ops.aten.to.dtype, torch.ops.aten.to.dtype_layout)


def part_of(
    captured: Captured, *, name: str, role: Role, outputs: Mapping[str, str], without: Collection[str] = ()
) -> Captured:
    """Return an entry point with some results of a capture, which stays as it is.

    Args:
        captured: the capture of all results.
        name: label of the entry point.
        role: its role.
        outputs: its results, and their names in the capture.
        without: inputs of the capture that it does not take.
    """
    exported, places = captured.exported, [captured.outputs.index(result) for result in outputs.values()]
    signature, graph = exported.graph_signature, fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    results = graph.graph_copy(exported.graph, copies)
    assert isinstance(results, tuple) and len(results) == len(captured.outputs), "an export returns its results only"
    graph.output(tuple(results[place] for place in places))
    drop_unused(graph)
    _drop_casts_of_others(graph, copies)
    user = [spec.arg.name for spec in signature.input_specs if spec.arg.name in signature.user_inputs]
    left_out = {node for node, label in zip(user, captured.inputs, strict=False) if label in without}
    for node in graph.find_nodes(op="placeholder"):
        if node.name in left_out:
            graph.erase_node(node)
    with use_lazy_graph_module(True):
        program = ExportedProgram(
            root=exported.graph_module,
            graph=graph,
            graph_signature=dataclasses.replace(
                signature,
                input_specs=[spec for spec in signature.input_specs if spec.arg.name not in left_out],
                output_specs=[signature.output_specs[place] for place in places],
            ),
            state_dict=exported.state_dict,
            range_constraints=exported.range_constraints,
            module_call_graph=exported.module_call_graph,
            constants=exported.constants,
            verifiers=exported.verifiers,
        )
    return dataclasses.replace(
        captured,
        name=name,
        role=role,
        exported=program,
        inputs=tuple(label for label in captured.inputs if label not in without),
        outputs=tuple(outputs),
    )


def _drop_casts_of_others(graph: fx.Graph, copies: Mapping[fx.Node, fx.Node]) -> None:
    """Remove casts of inputs that change nothing and were made for a result that is left out.

    A tensor that is cast to its own dtype is the same one, and what reads it later in a capture reads the cast.
    """
    kept = set(graph.nodes)
    for node, copy in copies.items():
        source = node.args[0] if node.target in _CASTS and copy in kept else None
        if not isinstance(source, fx.Node) or source.op != "placeholder":
            continue
        if node.meta["val"].dtype == source.meta["val"].dtype and copies.get(next(iter(node.users))) not in kept:
            copy.replace_all_uses_with(copies[source])
            graph.erase_node(copy)
