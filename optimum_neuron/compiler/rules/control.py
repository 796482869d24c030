"""Bookkeeping of graphs, prims of Inductor, collectives, and control flow, which must be static at compile time."""

from __future__ import annotations

import dataclasses

from ...base.core import Ruling
from .base import OpCall, Target, refuse, reject, rule, table
from .call import FUNCTIONALIZED, op_name

table(
    "bookkeeping",
    {
        "": (
            "_assert_async _assert_scalar _assert_tensor_metadata _linalg_check_errors prims._make_token "
            "prims._sink_tokens sym_constrain_range sym_constrain_range_for_size sym_numel sym_size "
            "sym_storage_offset sym_stride"
        ),
        "GetTupleElement": "python.getitem",
    },
    touches_data=False,
)

table(
    "subgraph",
    {"": "higher_order.invoke_subgraph higher_order.wrap_with_autocast higher_order.wrap_with_set_grad_enabled"},
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
    custom = dataclasses.replace(call, op=op_name(call.node.args[0]))
    return refuse(custom, "NCC_EUOC002", "it is a custom operator that writes to its arguments, and no rule knows it")


table(
    "prims",
    {
        "Iota Mul Add": "prims._low_memory_max_pool_offsets_to_indices",
        "ConvertElementType": "prims.convert_element_type",
        "": "prims.device_put prims.inductor_force_stride_order",
        "Mul Add": "prims.fma",
        "Iota": "prims.iota",
    },
)

table(
    "random-prims",
    {
        "": "prims.inductor_lookup_seed prims.inductor_seed prims.inductor_seeds",
        "RngUniform Floor ConvertElementType": "prims.inductor_randint",
        "RngUniform": "prims.inductor_random",
    },
    touches_data=False,
)

table(
    "collective",
    {
        "Allgather": "_c10d_functional.all_gather_into_tensor _c10d_functional.all_gather_into_tensor_coalesced "
        "neuron.all_gather xla.all_gather xla.all_gather_coalesced",
        "Allreduce": "_c10d_functional.all_reduce _c10d_functional.all_reduce_coalesced neuron.all_reduce "
        "xla.all_reduce",
        "Allgather Slice": "_c10d_functional.all_to_all_single _c10d_functional.broadcast xla.all_to_all "
        "xla.broadcast xla.collective_permute",
        "Allreduce Slice": "_c10d_functional.reduce_scatter_tensor _c10d_functional.reduce_scatter_tensor_coalesced "
        "neuron.reduce_scatter xla.reduce_scatter xla.reduce_scatter_coalesced",
        "": "neuron.send xla.send xla.recv",
    },
)

table("rank", {"": "neuron.rank"})
table("wait-for-collective", {"": "_c10d_functional.wait_tensor"})
