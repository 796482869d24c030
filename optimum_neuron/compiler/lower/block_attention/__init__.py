"""Attention of a few queries of each row to its cache on the host CPU, as an operator that Inductor calls from C++.

Keys and values are read where they lie: in blocks of a pool, which the operators of the program gather first, or in one
cache. Slots that no query sees are not read, so a step takes as long as its tokens, not as its compiled length.

    find_blocks(node)                                       # pools and table of a call that gathers its keys
    torch.ops.neuron_host.block_attention(query_BNTH, key_AKPH, value_AKPV, table_BM, mask_B1TS, scale)

Shape legend: B rows, N query heads, K key heads, T queries, H width of queries and keys, V of values; A blocks, P slots
of a block, M blocks in a row's table, S = M * P slots of a row.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import fx

from ..choose import CpuFeatures, probe_cpu
from ..handles import Handle, Handles, tensors_of
from ..kernel import TARGET_FLAGS, HostKernel

MAX_QUERIES = 8
"""Up to this many queries of a row it reads keys less often than packing them would."""

_ATEN = torch.ops.aten
_LIBRARY = torch.library.Library("neuron_host", "FRAGMENT")
_LIBRARY.define(
    "block_attention(Tensor query, Tensor key, Tensor value, Tensor? table, Tensor mask, float scale) -> Tensor",
    tags=(torch.Tag.flexible_layout,),  # any strides will do, so Inductor copies nothing
)
ATTENTION = torch.ops.neuron_host.block_attention.default


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blocks:
    """Nodes of a body that an attention reads through a table."""

    key: fx.Node
    """The pool [A, K, H, P], with slots innermost."""
    value: fx.Node
    """The pool [A, K, P, V]."""
    table: fx.Node


def find_blocks(attention: fx.Node) -> Blocks | None:
    """Return what an attention reads, if its keys and values are gathered from pools by one table."""
    key = _gathered(attention.args[1], (_ATEN.transpose.int, _ATEN.flatten.using_ints, _ATEN.permute.default))
    value = _gathered(attention.args[2], (_ATEN.flatten.using_ints, _ATEN.transpose.int))
    if key is None or value is None or key[1] is not value[1]:
        return None
    arguments = [node.args[1:] for node in (*_chain(attention.args[1], 3), *_chain(attention.args[2], 2))]
    if arguments != [(2, 3), (3,), ([0, 2, 3, 1, 4],), (2, 3), (1, 2)]:
        return None
    return Blocks(key=key[0], value=value[0], table=key[1])


def _chain(node: Any, length: int) -> Iterator[fx.Node]:
    """A node, and those before it."""
    for _ in range(length):
        yield node
        node = node.args[0]


def _gathered(node: Any, views: tuple[Any, ...]) -> tuple[fx.Node, fx.Node] | None:
    """Return the pool and the table of `pool[table]` behind some views."""
    for view in views:
        if not isinstance(node, fx.Node) or node.target != view:
            return None
        node = node.args[0]
    if not isinstance(node, fx.Node) or node.target != _ATEN.index.Tensor or len(node.args[1]) != 1:
        return None
    pool, (table,) = node.args
    return (pool, table) if table.meta["val"].dim() == 2 else None


def is_faster(
    features: CpuFeatures,
    query_BNTH: torch.Tensor,
    key_BKSH: torch.Tensor,
    value_BKSV: torch.Tensor,
    attn_mask: torch.Tensor | None,
) -> bool:
    """Return whether the kernel can take the call and is the fastest way."""
    kinds = (torch.float32, torch.bfloat16)
    return (
        features.isa in TARGET_FLAGS
        and query_BNTH.dim() == key_BKSH.dim() == 4
        and query_BNTH.shape[2] <= MAX_QUERIES
        and key_BKSH.dtype == value_BKSV.dtype
        and key_BKSH.dtype in kinds
        and key_BKSH.stride(2) == value_BKSV.stride(3) == 1
        and attn_mask is not None
        and attn_mask.dtype == torch.bool
        and attn_mask.dim() == 4
        and attn_mask.shape[1:3] == (1, query_BNTH.shape[2])
    )


def attend(
    query_BNTH: torch.Tensor,
    key_AKPH: torch.Tensor,
    value_AKPV: torch.Tensor,
    mask_B1TS: torch.Tensor,
    table_BM: torch.Tensor | None = None,
    *,
    scale: float | None = None,
) -> torch.Tensor:
    """Return attention [B, N, T, V] in the dtype of the queries; a query that sees no key has zeros.

    Args:
        query_BNTH: queries.
        key_AKPH: keys, of any strides, as are the values.
        value_AKPV: values.
        mask_B1TS: True where a query sees a slot.
        table_BM: blocks of each row's slots; None where each row has one block, its own.
        scale: factor of the scores; H^-0.5 by default.
    """
    scale = query_BNTH.shape[-1] ** -0.5 if scale is None else scale
    table = None if table_BM is None else table_BM.contiguous()
    mixed = ATTENTION(query_BNTH.float(), key_AKPH, value_AKPV, table, mask_B1TS, scale)
    return mixed.to(query_BNTH.dtype)


@torch.library.register_fake("neuron_host::block_attention", lib=_LIBRARY)
def _shape(
    query_BNTH: torch.Tensor,
    key_AKPH: torch.Tensor,
    value_AKPV: torch.Tensor,
    table_BM: torch.Tensor | None,
    mask_B1TS: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    num_rows, num_heads, num_queries, width = query_BNTH.shape
    num_slots = key_AKPH.shape[2] * (1 if table_BM is None else table_BM.shape[1])
    torch._check(query_BNTH.dtype == torch.float32 and key_AKPH.dtype == value_AKPV.dtype)
    torch._check(key_AKPH.shape[3] == width and num_heads % key_AKPH.shape[1] == 0)
    torch._check(key_AKPH.shape[:3] == value_AKPV.shape[:3])
    torch._check(table_BM is None or (table_BM.dtype == torch.int64 and table_BM.shape[0] == num_rows))
    torch._check(mask_B1TS.dtype == torch.bool and mask_B1TS.shape[1:] == (1, num_queries, num_slots))
    torch._check(mask_B1TS.shape[0] in (1, num_rows))
    return query_BNTH.new_empty((num_rows, num_queries, num_heads, value_AKPV.shape[-1])).transpose(1, 2)


@torch.library.impl(_LIBRARY, "block_attention", "CPU")
def _run(query: Any, key: Any, value: Any, table: Any, mask: Any, scale: float) -> torch.Tensor:
    _shape(query, key, value, table, mask, scale)
    owner = Handles([query, key, value, mask, *([] if table is None else [table])])
    table_handle = ctypes.byref(Handle(owner.array[4])) if table is not None else None
    result = Handle()
    function = KERNEL.load(probe_cpu().isa)
    if function(*owner.array[:3], table_handle, owner.array[3], scale, ctypes.byref(result)):
        raise MemoryError("attention found no memory")
    return tensors_of([result.value])[0]


def is_in(body: fx.GraphModule, features: CpuFeatures) -> bool:
    """Return whether host code of a body may call the kernel."""
    calls = body.graph.find_nodes(op="call_function", target=_ATEN.scaled_dot_product_attention.default)
    return features.isa in TARGET_FLAGS and any(
        find_blocks(node) is not None or node.args[0].meta["val"].shape[-2] <= MAX_QUERIES for node in calls
    )


KERNEL = HostKernel(
    title="attention to a cache on the host",
    operator=ATTENTION,
    arguments=(
        *("AtenTensorHandle query", "AtenTensorHandle key", "AtenTensorHandle value", "AtenTensorHandle* table"),
        *("AtenTensorHandle mask", "double scale", "AtenTensorHandle* result"),
    ),
    source=Path(__file__).with_name("block_attention.cpp"),
    is_in=is_in,
)
"""The kernel."""
