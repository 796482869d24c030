"""Operators of a graph that run on the host although no option names them.

An operator of torch without a published rule runs there as in eager mode: a backward has operators that users never
wrote. Those that the compiler is known to refuse, such as a sort, need permission. A custom operator is code of its
package: as in eager mode its CPU kernel runs, between the parts that are compiled. The experts of transformers models
loop over groups of tokens in such an operator, and sort and count the tokens for it, so those operators run on the host
with it. The compile report lists every operator that runs on the host. `allow_host_ops` may also name every refused
operator at once.

    check_with_host(graph_module, target, allow_host_ops=("aten::sort",)).raise_for_refusals()
"""

from __future__ import annotations

import functools
from collections.abc import Collection

from torch import fx

from ...base.core import Verdict
from ...compiler.rules import (
    UNKNOWN,
    OpCount,
    Report,
    base_name,
    can_be_hosted,
    check_graph,
    find_rule,
    op_name,
    operator_of,
)
from ...hardware import Target
from ...upstream.torch import OpOverload, dispatch_has_kernel_for_dispatch_key

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
        allow_host_ops: refused operators that may run on the host; "all" for each of them.
        implicit_integer_downcast: kinds of integer operators that may lose digits.
    """
    check = functools.partial(
        check_graph, graph_module, target, implicit_integer_downcast=tuple(implicit_integer_downcast)
    )
    allowed = operators_of_packages(graph_module).union(allow_host_ops) - {ALL}
    checks = check(allow_host_ops=allowed)
    refused = [c for c in checks.counts() if c.verdict is Verdict.UNSUPPORTED and can_be_hosted(c)]
    hosted = {base_name(c.op) for c in refused if ALL in allow_host_ops or _is_unknown(c)}
    return check(allow_host_ops=allowed | hosted) if hosted else checks


def operators_of_packages(graph_module: fx.GraphModule) -> frozenset[str]:
    """Return the operators of AOTAutograd's graph that only the host can run, such as "mylib::double".

    A custom operator with a device kernel is excluded: the host's kernel may compute something else.
    """
    targets = {operator_of(node) for node in graph_module.graph.nodes if node.op == "call_function"}
    names = {target._schema.name for target in targets if isinstance(target, OpOverload) and _is_custom(target)}
    if GROUPED_EXPERTS in names:
        names.update(_ROUTING)
    return frozenset(names)


def _is_unknown(count: OpCount) -> bool:
    """Return whether calls are refused only because no rule covers an operator of torch."""
    return count.rule == UNKNOWN and count.op.partition(".")[0] in _OF_TORCH


def _is_custom(operator: OpOverload) -> bool:
    name = operator._schema.name
    if operator.namespace in _OF_TORCH or (name != GROUPED_EXPERTS and find_rule(op_name(operator)) is not None):
        return False
    has_kernel = dispatch_has_kernel_for_dispatch_key
    return any(has_kernel(operator.name(), key) for key in _ON_HOST) and not has_kernel(operator.name(), "PrivateUse1")
