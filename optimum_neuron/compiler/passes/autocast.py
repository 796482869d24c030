"""Pass: round operands as the chip would under `--auto-cast`, and keep accumulating in float32.

"matmul" rounds the operands of matrix products and convolutions that are float32; "all" rounds the result of
every float32 operator too, as if every tensor were stored in the narrow type; what an operator computes in
place is rounded in place. Rounding is written in plain ATen (cast down, cast up), so the program says exactly
what is computed. Values inside an operator, such as attention probabilities and the steps of an LSTM, are not rounded.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ...base.core import AutoCast, AutoCastType
from ..ir import lazy_module
from ..rules import product_operands
from ..serialize import base_of, shares_memory, writes

if TYPE_CHECKING:
    from torch import fx

FP8_E4M3_MAX = 240.0
"""Largest finite value of the chip's FP8 E4M3 (IEEE-style, with infinities); torch's variant ends at 448."""

TF32_DROPPED_BITS = 13
"""Fraction bits of float32 that TF32 does not have: 23 - 10 (NVIDIA A100 architecture, "TF32 Tensor Cores")."""

_MOVES = ("aten.copy_", "aten.fill_", "aten.zero_", "aten.scatter_", "aten.index_copy_", "aten.index_put_")
"""Operators that store values in place and compute none, such as writes to a cache."""


def auto_cast(body: fx.GraphModule, *, kind: AutoCast, dtype: AutoCastType) -> fx.GraphModule:
    """Return a copy of `body` with rounding inserted; `kind` "none" returns it unchanged."""
    import torch
    from torch import fx

    if kind == "none":
        return body
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    rounded: dict[fx.Node, fx.Node] = {}
    for node in body.graph.nodes:
        operands = [operand for operand in product_operands(node) if _is_float32(operand)]
        for operand in operands:
            if operand not in rounded:
                rounded[operand] = _round(graph, copies[operand], dtype)
        copy = graph.node_copy(node, lambda n, operands=operands: rounded[n] if n in operands else copies[n])
        if kind == "all" and node.op == "call_function" and _is_float32(node):
            if writes(node) and not str(node.target).startswith(_MOVES):
                copy = _append(graph, copy, torch.ops.aten.copy_.default, copy, _round(graph, copy, dtype))
            elif not shares_memory(node):
                copy = rounded[node] = _round(graph, copy, dtype)
        if writes(node):
            for stale in [other for other in rounded if base_of(other) is base_of(node)]:
                del rounded[stale]
        copies[node] = copy
    graph.lint()
    return lazy_module(graph)


def _is_float32(node: fx.Node) -> bool:
    import torch

    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _append(graph: fx.Graph, origin: fx.Node, target: Any, *args: Any) -> fx.Node:
    """Append a call that comes from where `origin` comes from."""
    new = graph.call_function(target, args)
    new.meta = {key: origin.meta[key] for key in ("module_path", "source_line") if key in origin.meta}
    new.meta["val"] = target(*(a.meta["val"] if hasattr(a, "meta") else a for a in args))
    return new


def _round(graph: fx.Graph, node: fx.Node, dtype: AutoCastType) -> fx.Node:
    """Append nodes that round `node` to the narrow type and back to float32."""
    import torch

    append, ops = functools.partial(_append, graph, node), torch.ops.aten
    if dtype == "tf32":
        # To the nearest, ties to even, on the bits: infinities are unchanged.
        bits = append(ops.view.dtype, node, torch.int32)
        last = append(ops.bitwise_and.Scalar, append(ops.bitwise_right_shift.Tensor_Scalar, bits, TF32_DROPPED_BITS), 1)
        moved = append(ops.add.Tensor, append(ops.add.Tensor, bits, last), 2 ** (TF32_DROPPED_BITS - 1) - 1)
        return append(ops.view.dtype, append(ops.bitwise_and.Scalar, moved, -(2**TF32_DROPPED_BITS)), torch.float32)
    if dtype == "fp8_e4m3":
        node = append(ops.clamp.default, node, -FP8_E4M3_MAX, FP8_E4M3_MAX)
    narrow = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8_e4m3": torch.float8_e4m3fn}[dtype]
    return append(ops.to.dtype, append(ops.to.dtype, node, narrow), torch.float32)
