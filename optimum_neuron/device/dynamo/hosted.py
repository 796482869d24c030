"""Operators of a graph that run on the host although no option names them, because no compiler can know them.

A custom operator is code of its package: as in eager mode its CPU kernel runs, between the parts that are compiled. The
experts of transformers models loop over groups of tokens in such an operator, and sort and count the tokens for it, so
those operators run on the host with it. The compile report lists every operator that runs on the host. `allow_host_ops`
may also name every refused operator at once.

    check_with_host(graph_module, target, allow_host_ops=("aten::sort",)).raise_for_refusals()
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

from torch import fx

from ...compiler.rules import FUNCTIONALIZED, Report, base_name, can_be_hosted, check_graph, find_rule, op_name
from ...core import Verdict
from ...hardware import Target
from ...upstream.torch import HigherOrderOperator, OpOverload, dispatch_has_kernel_for_dispatch_key

ALL = "all"
"""Value of `allow_host_ops` for every operator that the chip refuses."""

GROUPED_EXPERTS = "transformers::grouped_mm_fallback"
"""The loop over experts of transformers' default implementation."""

_ROUTING = ("aten::sort", "aten::histc")
"""Operators that its caller groups tokens with."""

_OF_TORCH = frozenset({"aten", "prim", "prims", "inductor", "rngprims", "_c10d_functional", "c10d", "neuron_sim"})
"""Namespaces that the compiler's rules cover."""

_ON_HOST = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")


def check_with_host(
    graph_module: fx.GraphModule,
    target: Target,
    *,
    allow_host_ops: Collection[str],
    implicit_integer_downcast: Collection[str] = (),
) -> Report:
    """Check a graph of AOTAutograd for a target.

    Args:
        graph_module: the graph.
        target: Compile target.
        allow_host_ops: operators that may run on the host besides those of packages; "all" for every refused one.
        implicit_integer_downcast: kinds of integer operators that may lose digits.
    """
    check = functools.partial(
        check_graph, graph_module, target, implicit_integer_downcast=tuple(implicit_integer_downcast)
    )
    allowed = operators_of_packages(graph_module).union(allow_host_ops) - {ALL}
    checks = check(allow_host_ops=allowed)
    if ALL not in allow_host_ops or not checks.refused:
        return checks
    refused = {base_name(c.op) for c in checks.counts() if c.verdict is Verdict.UNSUPPORTED and can_be_hosted(c)}
    return check(allow_host_ops=allowed | refused)


def operators_of_packages(graph_module: fx.GraphModule) -> frozenset[str]:
    """Return the operators of AOTAutograd's graph that only the host can run, such as "mylib::double".

    A custom operator with a device kernel is excluded: the host's kernel may compute something else.
    """
    targets = {_operator(node) for node in graph_module.graph.nodes if node.op == "call_function"}
    names = {target._schema.name for target in targets if isinstance(target, OpOverload) and _is_custom(target)}
    if GROUPED_EXPERTS in names:
        names.update(_ROUTING)
    return frozenset(names)


def _operator(node: fx.Node) -> Any:
    """The operator that a node calls; one that writes to its arguments is an argument of the call."""
    if isinstance(node.target, HigherOrderOperator) and node.target.name() in FUNCTIONALIZED:
        return node.args[0]
    return node.target


def _is_custom(operator: OpOverload) -> bool:
    name = operator._schema.name
    if operator.namespace in _OF_TORCH or (name != GROUPED_EXPERTS and find_rule(op_name(operator)) is not None):
        return False
    has_kernel = dispatch_has_kernel_for_dispatch_key
    return any(has_kernel(operator.name(), key) for key in _ON_HOST) and not has_kernel(operator.name(), "PrivateUse1")
