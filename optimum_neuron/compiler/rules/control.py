"""Bookkeeping of exported graphs, and control flow: only what is static at compile time is accepted."""

from __future__ import annotations

import dataclasses

from ...core import Ruling
from .base import OpCall, Target, refuse, rule, table
from .call import FUNCTIONALIZED, op_name

table(
    "bookkeeping",
    {
        "aten._assert_async": "",
        "aten._assert_scalar": "",
        "aten._assert_tensor_metadata": "",
        "aten.sym_constrain_range": "",
        "aten.sym_constrain_range_for_size": "",
        "aten.sym_numel": "",
        "aten.sym_size": "",
        "aten.sym_storage_offset": "",
        "aten.sym_stride": "",
        "python.getitem": "GetTupleElement",
    },
    touches_data=False,
)

table(
    "subgraph",
    {
        "higher_order.invoke_subgraph": "",
        "higher_order.wrap_with_autocast": "",
        "higher_order.wrap_with_set_grad_enabled": "",
    },
    touches_data=False,
)


@rule(
    "control-flow",
    "higher_order.associative_scan",
    "higher_order.cond",
    "higher_order.map_impl",
    "higher_order.scan",
    "higher_order.while_loop",
)
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse control flow that is decided while the graph runs."""
    return refuse(
        call,
        "control-flow",
        "NCC_EUOC002",
        "the compiler has no control flow that is decided at run time",
        remedy="compute both sides and select with torch.where, or unroll the loop to a fixed count",
    )


@rule("functionalized-operator", *(f"higher_order.{name}" for name in FUNCTIONALIZED))
def judge_functionalized(call: OpCall, target: Target) -> Ruling:
    """Refuse a custom operator that writes to its arguments, under its own name: the host may still run it."""
    operator = op_name(call.node.args[0])
    return refuse(
        dataclasses.replace(call, op=operator),
        "functionalized-operator",
        "NCC_EUOC002",
        "it is a custom operator that writes to its arguments, and no rule knows it",
    )
