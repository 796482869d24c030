"""Bookkeeping of exported graphs, and control flow: only what is static at compile time is accepted."""

from __future__ import annotations

import dataclasses

from ...core import Ruling
from .base import OpCall, Target, refuse, reject, rule, table
from .call import FUNCTIONALIZED, op_name

table(
    "bookkeeping",
    {
        "": (
            "_assert_async _assert_scalar _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size "
            "sym_numel sym_size sym_storage_offset sym_stride"
        ),
        "GetTupleElement": "python.getitem",
    },
    touches_data=False,
)

table(
    "subgraph",
    {
        "": "higher_order.invoke_subgraph higher_order.wrap_with_autocast higher_order.wrap_with_set_grad_enabled",
    },
    touches_data=False,
)


reject(
    "control-flow",
    "higher_order.associative_scan higher_order.cond higher_order.map_impl higher_order.scan higher_order.while_loop",
    code="NCC_EUOC002",
    reason="the compiler has no control flow that is decided at run time",
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
