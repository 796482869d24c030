"""The Dynamo backend: every graph is checked, cast, estimated and turned into host code.

AOTAutograd hands over a forward and a backward graph. Each is compared with the compiler's rules, so an operator that
the chip refuses is named with its module and source line; the cost of each is estimated. Host code is Inductor's, whose
caches work as always: a second process starts warm.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch._guards import CompileContext

from ...compiler.lower.choose import HostLevel, compiler_knows_cpu, probe_compiler
from ...compiler.passes.autocast import auto_cast
from ...compiler.rules.report import check_graph
from ...core import Choice, Rejected
from .. import products
from . import report, shapes
from .estimate import estimate
from .host_graph import HostFunction, on_device
from .options import CompileOptions
from .products import use_onednn

logger = logging.getLogger(__package__)


def compile_graph(
    graph_module: fx.GraphModule,
    example_inputs: list[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Compile one captured graph with its gradient; torch calls it.

    Raises:
        ConfigError: a mode or option that the backend has not.
        UnsupportedOperatorError: the target refuses operators; all of a graph are listed.
    """
    from torch._functorch import config as functorch_config
    from torch._inductor.compile_fx import compile_fx

    chosen = CompileOptions.from_torch(mode=mode, options=options)
    chosen.resolve()
    was_symbolic = shapes.fix_sizes(example_inputs)
    compile_id = CompileContext.current_compile_id()
    frame, number = (compile_id.frame_id or 0, compile_id.frame_compile_id or 0) if compile_id else (0, 0)
    why = shapes.reason_of_compile(graph_module, frame, number, was_symbolic=was_symbolic)
    inner = functools.partial(_compile_inner, options=chosen, frame=f"{frame}/{number}", why=why)
    # AOTAutograd's own cache would bring back host code without the border to the device.
    with functorch_config.patch(enable_autograd_cache=False):
        return compile_fx(graph_module, example_inputs, inner_compile=inner)


def _compile_inner(
    graph_module: fx.GraphModule,
    example_inputs: list[Any],
    *,
    options: CompileOptions,
    frame: str,
    why: str,
    **keywords: Any,
) -> HostFunction:
    """Compile a forward, backward or inference graph of AOTAutograd."""
    start = time.perf_counter()
    target = options.resolve()
    check_graph(graph_module, target.value, allow_host_ops=options.allow_host_ops).raise_for_refusals()
    if options.auto_cast != "none":
        graph_module = auto_cast(graph_module, kind=options.auto_cast, dtype=options.auto_cast_type)
    cost = estimate(graph_module, target.value)
    level = choose_host_code(options)
    num_calls = sum(node.op == "call_function" for node in graph_module.graph.nodes)
    make = functools.partial(_host_code, level=level.value, keywords=keywords)
    compiled = on_device(graph_module, example_inputs, make)
    done = report.CompiledGraph(
        frame=frame,
        kind="backward" if keywords.get("is_backward") else "inference" if keywords.get("is_inference") else "forward",
        why=why,
        num_calls=num_calls,
        host_code=Choice(value=str(level.value), reason=level.reason, rejected=level.rejected),
        products=products.current(),
        target=Choice(value=target.value.name, reason=target.reason),
        auto_cast="none" if options.auto_cast == "none" else f"{options.auto_cast} to {options.auto_cast_type}",
        estimate=cost,
        compile_s=time.perf_counter() - start,
    )
    report.add(done)
    logger.info("%s", done)
    return compiled


def choose_host_code(options: CompileOptions) -> Choice[HostLevel]:
    """Decide how graphs run on the host, and why."""
    if options.optlevel == "1":
        return Choice(value="aten", reason="optlevel 1: operator by operator")
    wanted: HostLevel = "inductor-max" if options.optlevel == "3" else "inductor"
    compiler = probe_compiler()
    if compiler is None:
        missing = Rejected(candidate=wanted, reason="needs g++ or clang++ (apt-get install g++)")
        return Choice(value="aten", reason="no C++ compiler on this machine", rejected=(missing,))
    return Choice(value=wanted, reason=f"optlevel {options.optlevel}: fused kernels by {compiler}")


def _host_code(
    graph_module: fx.GraphModule, example_inputs: list[Any], *, level: HostLevel, keywords: dict[str, Any]
) -> HostFunction:
    if products.current().value == "onednn" and torch.backends.mkldnn.enabled:
        use_onednn(graph_module)
    if level == "aten":
        return _operator_by_operator(graph_module)
    from torch._inductor import config as inductor_config
    from torch._inductor.compile_fx import compile_fx_inner

    # Loops are compiled for a number of threads, which is not in the key of Inductor's cache unless it is a setting.
    settings = {
        "max_autotune": level == "inductor-max",
        "cpp.threads": torch.get_num_threads(),
        "cpp.vec_isa_ok": compiler_knows_cpu() or None,
    }
    with inductor_config.patch(settings):
        return compile_fx_inner(graph_module, example_inputs, **keywords)


def _operator_by_operator(graph_module: fx.GraphModule) -> HostFunction:
    def run(arguments: list[Any]) -> Any:
        given = list(arguments)
        arguments.clear()
        return graph_module(*given)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
