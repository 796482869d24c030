"""The Dynamo backend: every graph is checked, cast, estimated and turned into host code.

AOTAutograd hands over a forward and a backward graph. Each is compared with the compiler's rules, so an operator that
the chip refuses is named with its module and source line; the cost of each is estimated. Host code is Inductor's. A
second process loads all of this from torch's caches (`cache.py`) without tracing, checking, or compiling again.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Mapping
from typing import Any

from torch import fx

from ...base import env
from ...base.core import Choice, Rejected
from ...compiler import parse_flags, tally
from ...compiler.lower import HostLevel, probe_compiler
from ...compiler.passes import auto_cast
from ...compiler.rules import base_name
from ...hardware import kernels_for
from ...upstream.torch import CompileContext
from .. import flex_attention
from . import cache, decompositions, report, shapes
from .border import HostFunction
from .complex_pairs import report_strides, write_pairs
from .estimate import estimate, work_of_calls
from .host_graph import border_of, on_device
from .hosted import check_with_host
from .options import CompileOptions
from .plan import Plan
from .products import use_onednn

logger = logging.getLogger(__package__)


def compile_graph(
    graph_module: fx.GraphModule,
    example_inputs: list[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Compile one captured graph with its gradient; torch calls it."""
    from ...upstream.inductor import compile_fx

    chosen = CompileOptions.from_torch(mode=mode, options=options)
    chosen.resolve()
    shapes.fix_numbers(graph_module)
    flex_attention.write_out(graph_module)
    was_symbolic = shapes.fix_sizes(example_inputs)
    compile_id = CompileContext.current_compile_id()
    frame, number = (compile_id.frame_id or 0, compile_id.frame_compile_id or 0) if compile_id else (0, 0)
    why = shapes.reason_of_compile(graph_module, frame, number, was_symbolic=was_symbolic)
    plan = Plan.make(chosen, choose_host_code(chosen), frame=f"{frame}/{number}", why=why)
    loaded = cache.LoadedGraphs(plan.frame)

    def compile_inner(graph_module: fx.GraphModule, example_inputs: list[Any], **keywords: object) -> HostFunction:
        # AOTAutograd compiles after all if it cannot use an entry that it began to load.
        loaded.graphs.clear()
        return _compile_inner(graph_module, example_inputs, plan=plan, **keywords)

    with cache.caches(plan, loaded), kernels_for(plan.target.value), warnings.catch_warnings():
        # It has none of them by then (`complex_pairs.py`).
        warnings.filterwarnings("ignore", "Torchinductor does not support code generation for complex", UserWarning)
        compiled = compile_fx(
            graph_module, example_inputs, inner_compile=compile_inner, decompositions=decompositions.table()
        )
    for checked, seconds in loaded.graphs:
        _report(plan, checked, seconds=seconds, loaded_from="AOTAutograd's cache")
    loaded.graphs.clear()
    return compiled


def _compile_inner(
    graph_module: fx.GraphModule, example_inputs: list[Any], *, plan: Plan, **keywords: object
) -> HostFunction:
    """Compile a forward, backward or inference graph of AOTAutograd."""
    start = time.perf_counter()
    example_inputs = shapes.fix_random_states(graph_module, example_inputs)
    graph_module, example_inputs, *complex_places = write_pairs(graph_module, example_inputs)
    target, options = plan.target.value, plan.options
    downcasts = parse_flags((), defaults=env.compiler_flags()).implicit_integer_downcast
    checks = check_with_host(
        graph_module, target, allow_host_ops=options.allow_host_ops, implicit_integer_downcast=downcasts
    )
    checks.raise_for_refusals()
    if options.auto_cast != "none":
        graph_module = auto_cast(graph_module, kind=options.auto_cast, dtype=options.auto_cast_type)
    checked = cache.CheckedGraph(
        border=border_of(graph_module, example_inputs, *complex_places),
        kind="backward" if keywords.get("is_backward") else "inference" if keywords.get("is_inference") else "forward",
        num_calls=sum(node.op == "call_function" for node in graph_module.graph.nodes),
        host_ops=tuple(sorted({base_name(ruling.op) for ruling in checks.hosted})),
        estimate=estimate(graph_module, target),
        work=work_of_calls(graph_module),
        kernels=cache.stored_kernels(graph_module),
    )
    was_loaded = False

    def make(graph_module: fx.GraphModule, example_inputs: list[Any]) -> HostFunction:
        nonlocal was_loaded
        if plan.by_onednn:
            use_onednn(graph_module)
        if plan.host_code.value == "aten":
            return _operator_by_operator(graph_module)
        compiled, was_loaded = cache.inductor(graph_module, example_inputs, plan=plan, checked=checked, **keywords)
        report_strides(checked.border.complex_results)
        return compiled

    compiled = on_device(graph_module, example_inputs, checked.border, checked.calls(plan.frame), make)
    seconds = time.perf_counter() - start
    _report(plan, checked, seconds=seconds, loaded_from="Inductor's cache" if was_loaded else None)
    return compiled


def _report(plan: Plan, checked: cache.CheckedGraph, *, seconds: float, loaded_from: str | None) -> None:
    """Add a graph to the compile report, to the records of the process, and to the log."""
    options, host_code, target = plan.options, plan.host_code, plan.target
    done = report.CompiledGraph(
        frame=plan.frame,
        kind=checked.kind,
        why=plan.why,
        loaded_from=loaded_from,
        num_calls=checked.num_calls,
        host_ops=checked.host_ops,
        host_code=Choice(value=str(host_code.value), reason=host_code.reason, rejected=host_code.rejected),
        products=plan.products,
        target=Choice(value=target.value.name, reason=target.reason),
        auto_cast="none" if options.auto_cast == "none" else f"{options.auto_cast} to {options.auto_cast_type}",
        estimate=checked.estimate,
        compile_s=seconds,
    )
    report.add(done)
    if (folder := env.compile_records()) is not None:
        tally.add(folder, "torch.compile", f"{done.frame} {done.kind}", was_compiled=loaded_from is None)
    logger.info("%s", done)


def choose_host_code(options: CompileOptions) -> Choice[HostLevel]:
    """Decide how graphs run on the host, and why."""
    if options.optlevel == "1":
        return Choice(value="aten", reason="optlevel 1: operator by operator")
    level: HostLevel = "inductor-max" if options.optlevel == "3" else "inductor"
    compiler = probe_compiler()
    if compiler is None:
        missing = Rejected(candidate=level, reason="needs g++ or clang++ (apt-get install g++)")
        return Choice(value="aten", reason="no C++ compiler on this machine", rejected=(missing,))
    return Choice(value=level, reason=f"optlevel {options.optlevel}: fused kernels by {compiler}")


def _operator_by_operator(graph_module: fx.GraphModule) -> HostFunction:
    def run(arguments: list[Any]) -> Any:
        values = list(arguments)
        arguments.clear()
        return graph_module(*values)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
