"""Attention of a few queries of each row to its cache on the host CPU, as an operator that Inductor calls from C++.

Keys and values are read where they lie: in blocks of a pool, which the operators of the program gather first, or in one
cache; and as they are stored: in 8 bits, which the operators of the program dequantize first. Slots that no query sees
are not read, so a step takes as long as its tokens, not as its compiled length.

    find_stored(node)                                       # what lies behind the keys and values of a call
    torch.ops.neuron_host.block_attention(
        query_BNTH, key_AKPH, value_AKPV, key_scale_AKP1, value_scale_AKP1, table_BM, mask_B1TS, scale
    )

Shape legend: B rows, N query heads, K key heads, T queries, H width of queries and keys, V of values; A blocks, P slots
of a block, M blocks in a row's table, S = M * P slots of a row.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from torch import fx

from ..choose import CpuFeatures
from ..kernel import TARGET_FLAGS, HostKernel

MAX_QUERIES = 8
"""Up to this many queries of a row it reads keys less often than packing them would."""

_ATEN = torch.ops.aten
_NARROW = (torch.int8, torch.float8_e4m3fn)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """Nodes of a body that an attention reads: through a table, as numbers of 8 bits, or both."""

    key: fx.Node
    """A pool [A, K, H, P], with slots innermost; without a table [B, K, S, H]."""
    value: fx.Node
    """A pool [A, K, P, V]; without a table [B, K, S, V]."""
    key_scale: fx.Node | None = None
    """Laid out as keys of width 1, or one number for all."""
    value_scale: fx.Node | None = None
    table: fx.Node | None = None
    """Blocks of each row."""


def find_stored(attention: fx.Node) -> Stored | None:
    """Return what an attention reads, if its keys and values are gathered by one table, dequantized, or both."""
    (key, key_scale), (value, value_scale) = (_quantized(node) or (node, None) for node in attention.args[1:3])
    parts = {"key": key, "value": value, "key_scale": key_scale, "value_scale": value_scale}
    pools = {name: _gathered(node, is_key=name.startswith("key")) for name, node in parts.items() if _has_slots(node)}
    tables = {None if found is None else found[1] for found in pools.values()}
    if len(tables) > 1:
        return None
    (table,) = tables
    if table is not None:
        return Stored(**parts | {name: found[0] for name, found in pools.items() if found}, table=table)
    return Stored(**parts) if key.meta["val"].dtype in _NARROW else None


def _has_slots(node: fx.Node | None) -> bool:
    return node is not None and node.meta["val"].dim() > 1


def _quantized(node: fx.Node) -> tuple[fx.Node, fx.Node | None] | None:
    """Return numbers of 8 bits and their scale, if a node dequantizes some; see `models/common/cache_dtypes.py`."""
    before = node.args[0] if node.target == _ATEN.to.dtype else node
    if before.meta["val"].dtype in _NARROW:
        return before, None
    if before.target != _ATEN.mul.Tensor or before.args[0].target != _ATEN.to.dtype:
        return None
    numbers, scale = before.args[0].args[0], before.args[1]
    return (numbers, scale) if numbers.meta["val"].dtype in _NARROW else None


_KEY_VIEWS = [
    (_ATEN.transpose.int, (2, 3)),
    (_ATEN.flatten.using_ints, (3,)),
    (_ATEN.permute.default, ([0, 2, 3, 1, 4],)),
]
_VALUE_VIEWS = [(_ATEN.flatten.using_ints, (2, 3)), (_ATEN.transpose.int, (1, 2))]
"""Views between gathered blocks and attention, the last one first; see `models/common/blocks.py`."""


def _gathered(node: fx.Node, *, is_key: bool) -> tuple[fx.Node, fx.Node] | None:
    """Return the pool and the table of `pool[table]` behind its views."""
    for target, arguments in _KEY_VIEWS if is_key else _VALUE_VIEWS:
        if not isinstance(node, fx.Node) or node.target != target or node.args[1:] != arguments:
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
    kinds = (torch.float32, torch.bfloat16, *_NARROW)
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
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """Return attention [B, N, T, V] in the dtype of the queries; a query that sees no key has zeros.

    Args:
        key_AKPH: keys, of any strides, as are the values.
        mask_B1TS: True where a query sees a slot.
        table_BM: blocks of each row's slots; None where each row has one block, its own.
        key_scale: what keys are multiplied by, [A, K, P, 1] or one number for all; None for 1.
        scale: factor of the scores; H^-0.5 by default.
    """
    scale = query_BNTH.shape[-1] ** -0.5 if scale is None else scale
    table = None if table_BM is None else table_BM.contiguous()
    scales = (one if one is None or one.dim() == 4 else one.view(1, 1, 1, 1) for one in (key_scale, value_scale))
    mixed = ATTENTION(query_BNTH.float(), key_AKPH, value_AKPV, *scales, table, mask_B1TS, scale)
    return mixed.to(query_BNTH.dtype)


def _shape(
    query_BNTH: torch.Tensor,
    key_AKPH: torch.Tensor,
    value_AKPV: torch.Tensor,
    key_scale: torch.Tensor | None,
    value_scale: torch.Tensor | None,
    table_BM: torch.Tensor | None,
    mask_B1TS: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    num_rows, num_heads, num_queries, width = query_BNTH.shape
    num_slots = key_AKPH.shape[2] * (1 if table_BM is None else table_BM.shape[1])
    torch._check(query_BNTH.dtype == torch.float32 and key_AKPH.dtype == value_AKPV.dtype)
    torch._check(key_AKPH.shape[3] == width and num_heads % key_AKPH.shape[1] == 0)
    torch._check(key_AKPH.shape[:3] == value_AKPV.shape[:3])
    for one in (key_scale, value_scale):
        torch._check(one is None or (one.dtype == torch.float32 and one.shape in ((*key_AKPH.shape[:3], 1), (1,) * 4)))
    torch._check(table_BM is None or (table_BM.dtype == torch.int64 and table_BM.shape[0] == num_rows))
    torch._check(mask_B1TS.dtype == torch.bool and mask_B1TS.shape[1:] == (1, num_queries, num_slots))
    torch._check(mask_B1TS.shape[0] in (1, num_rows))
    return query_BNTH.new_empty((num_rows, num_queries, num_heads, value_AKPV.shape[-1])).transpose(1, 2)


def is_in(body: fx.GraphModule, features: CpuFeatures) -> bool:
    """Return whether host code of a body may call the kernel."""
    calls = body.graph.find_nodes(op="call_function", target=_ATEN.scaled_dot_product_attention.default)
    return features.isa in TARGET_FLAGS and any(
        find_stored(node) is not None or node.args[0].meta["val"].shape[-2] <= MAX_QUERIES for node in calls
    )


KERNEL = HostKernel(
    schema="neuron_host::block_attention(Tensor query, Tensor key, Tensor value, Tensor? key_scale, "
    "Tensor? value_scale, Tensor? table, Tensor mask, float scale) -> Tensor",
    title="attention to a cache on the host",
    source=Path(__file__).with_name("block_attention.cpp"),
    shape=_shape,
    is_in=is_in,
    any_strides=True,
)
ATTENTION = KERNEL.operator
