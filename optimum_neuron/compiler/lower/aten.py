"""Run a subprogram operator by operator through ATen: no compiler, ready at once, the reference for compiled code.

Some operators are called in another form with the same arithmetic: attention with shared key heads and products of
weights that are cast to float32, for which ATen would copy more than it computes, and products of 16-bit numbers on
CPUs that have no units for them. Operators that return their argument are removed, and frequent ones are called as
torch's own functions.

Shape legend: B batch, N query heads, K key heads, G = N / K, T queries, S keys, H head width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ...upstream.torch import linear, silu
from ..ir import forget_source_at_end
from .choose import LIBRARY_ROWS, MAX_STREAMED_ROWS, probe_cpu

_ATEN = torch.ops.aten

HostFunction = Callable[[list[torch.Tensor]], list[torch.Tensor]]
"""A subprogram that can be called: tensors in, tensors out, state changed in place."""

CHUNK_BYTES = 1 << 22
"""Size of the part of a weight that is cast at once, so that the matmul reads it from the CPU's caches; below it,
starting threads takes longer than the matmul."""

_DIRECT: dict[Any, Callable[..., Any]] = {
    _ATEN.add.Tensor: torch.add,
    _ATEN.cat.default: torch.cat,
    _ATEN.flatten.using_ints: torch.flatten,
    _ATEN.flip.default: torch.flip,
    _ATEN.linear.default: linear,
    _ATEN.mean.dim: torch.mean,
    _ATEN.mul.Tensor: torch.mul,
    _ATEN.pow.Tensor_Scalar: torch.pow,
    _ATEN.reshape.default: torch.reshape,
    _ATEN.rsqrt.default: torch.rsqrt,
    _ATEN.silu.default: silu,
    _ATEN.split_with_sizes.default: torch.split_with_sizes,
    _ATEN.to.dtype: torch.Tensor.to,
    _ATEN.transpose.int: torch.transpose,
    _ATEN.unsqueeze.default: torch.unsqueeze,
    _ATEN.view.default: torch.Tensor.view,
}
"""Operators to torch's functions of the same arguments, which Python calls in about half the time."""

_PRODUCTS = (
    *(_ATEN.linear.default, _ATEN.mm.default, _ATEN.bmm.default, _ATEN.matmul.default),
    *(_ATEN.conv1d.default, _ATEN.conv2d.default, _ATEN.conv3d.default, _ATEN.convolution.default),
)
"""Operators whose tensors, two or three, are multiplied and added in float32 and rounded once."""


def aten_function(body: fx.GraphModule) -> HostFunction:
    """Return a subprogram as a host function; the subprogram itself is not changed."""
    forward = _rewritten(body).forward

    def call(arguments: list[torch.Tensor]) -> list[torch.Tensor]:
        return list(forward(*arguments))

    return call


def _rewritten(body: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(graph.graph_copy(body.graph, {}))
    for node in graph.nodes:
        if node.target == _ATEN.scaled_dot_product_attention.default:
            node.target = attention
        elif node.target == _ATEN.linear.default and _is_matrix(weight := _cast_to_float32(node.args[1])):
            _multiply_cast(node, weight)
        elif node.target in _PRODUCTS and _is_slow(node):
            _multiply_wide(node)
        elif _is_argument(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    for node in graph.nodes:
        # `torch.Tensor.to` takes a memory format as a keyword only.
        if node.target != _ATEN.to.dtype or len(node.args) < 5:
            node.target = _DIRECT.get(node.target, node.target)
    rewritten = fx.GraphModule(body, graph)
    forget_source_at_end(rewritten)
    return rewritten


def _is_argument(node: fx.Node) -> bool:
    """Return whether a node returns its argument: an alias, or a cast to the dtype that the argument has."""
    if node.target == _ATEN.alias.default:
        return True
    is_cast = node.target == _ATEN.to.dtype and len(node.args) == 2 and not node.kwargs
    return is_cast and node.args[0].meta["val"].dtype == node.args[1]


def _multiply_cast(node: fx.Node, weight: fx.Node) -> None:
    """Let a matmul cast its weight itself, or not at all if its operands are bf16."""
    x, cast = node.args[:2]
    node.target, node.args = linear_of_cast, (x, weight, *node.args[2:])
    # Of few rows reading the weight takes longest.
    source = _cast_to_float32(x) if x.meta["val"].shape[:-1].numel() <= MAX_STREAMED_ROWS else None
    is_bf16 = source is not None and source.meta["val"].dtype == weight.meta["val"].dtype == torch.bfloat16
    if is_bf16 and probe_cpu().has_bf16_dot:
        node.target, node.args = linear_of_bf16, (source, *node.args[1:])
    for argument in (cast, x):
        if not argument.users and argument.op == "call_function":
            node.graph.erase_node(argument)


def _is_slow(node: fx.Node) -> bool:
    """Return whether this CPU multiplies the 16-bit operands of a product more slowly than it casts them.

    With AVX2 alone, 1,024 rows of 1,536 numbers and 576 outputs take 282 ms in bf16 on two cores, and 37 ms so.
    """
    values = [argument.meta["val"] for argument in node.all_input_nodes]
    is_narrow = all(value.dtype in (torch.bfloat16, torch.float16) for value in values)
    rows = math.prod(node.meta["val"].shape[:-1])
    return is_narrow and rows >= LIBRARY_ROWS and not probe_cpu().has_bf16_dot


def _multiply_wide(node: fx.Node) -> None:
    """Let a product of 16-bit operands have float32 operands, and round its result."""
    graph, value = node.graph, node.meta["val"]
    streamed = node.args[1] if node.target == _ATEN.linear.default and _is_matrix(node.args[1]) else None
    wide: dict[fx.Node, fx.Node] = {}
    for operand in node.all_input_nodes:
        if operand is not streamed:
            with graph.inserting_before(node):
                wide[operand] = graph.call_function(_ATEN.to.dtype, (operand, torch.float32))
            wide[operand].meta["val"] = operand.meta["val"].float()
    with graph.inserting_after(node):
        rounded = graph.call_function(_ATEN.to.dtype, (node, value.dtype))
    node.replace_all_uses_with(rounded, delete_user_cb=lambda user: user is not rounded)
    node.args = fx.map_arg(node.args, lambda operand: wide.get(operand, operand))
    node.kwargs = fx.map_arg(node.kwargs, lambda operand: wide.get(operand, operand))
    node.target = node.target if streamed is None else linear_of_cast
    node.meta["val"], rounded.meta["val"] = value.float(), value


def _cast_to_float32(node: fx.Node) -> fx.Node | None:
    """Node that is cast to float32; None for other nodes."""
    return node.args[0] if node.target == _ATEN.to.dtype and node.args[1] == torch.float32 else None


def _is_matrix(node: fx.Node | None) -> bool:
    return node is not None and node.op == "placeholder" and node.meta["val"].dim() == 2


def linear_of_bf16(x: torch.Tensor, weight_OI: torch.Tensor, bias_O: torch.Tensor | None = None) -> torch.Tensor:
    """Return `x.float() @ weight.float().T + bias` of bf16 operands, and cast no weight.

    The CPU's bf16 matmuls add in float32 and round the sum to bf16. A second one, with the rounded sum subtracted,
    returns the rounding error: together they have 16 bits of the sum.
    """
    rows = x.reshape(-1, x.shape[-1])
    rounded = torch.nn.functional.linear(rows, weight_OI)
    rest = torch.addmm(rounded, rows, weight_OI.t(), beta=-1).float()
    result = torch.where(rounded.isfinite(), rest, 0) + rounded  # of an infinite sum nothing is left
    return (result if bias_O is None else result + bias_O).view(*x.shape[:-1], -1)


def linear_of_cast(x: torch.Tensor, weight_OI: torch.Tensor, bias_O: torch.Tensor | None = None) -> torch.Tensor:
    """Return `x @ weight.float().T + bias`, with the weight cast part by part."""
    num_rows = max(1, CHUNK_BYTES // (4 * weight_OI.shape[1]))
    if weight_OI.shape[0] <= num_rows:
        return torch.nn.functional.linear(x, weight_OI.float(), bias_O)
    cast = torch.empty(num_rows, weight_OI.shape[1])
    parts = [torch.nn.functional.linear(x, cast[: part.shape[0]].copy_(part)) for part in weight_OI.split(num_rows)]
    result = torch.cat(parts, -1)
    return result if bias_O is None else result + bias_O


def attention(
    query_BNTH: torch.Tensor,
    key_BKSH: torch.Tensor,
    value_BKSH: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Scaled dot-product attention in float32, as ATen's operator, but key heads are not repeated."""
    if dropout_p:
        return _ATEN.scaled_dot_product_attention(
            query_BNTH, key_BKSH, value_BKSH, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    # The kernel that keeps no scores takes contiguous keys and values only.
    rows = torch.contiguous_format
    query = query_BNTH.float()
    key, value = (x.to(torch.float32, memory_format=rows).contiguous() for x in (key_BKSH, value_BKSH))
    mask = attn_mask.float() if attn_mask is not None and attn_mask.is_floating_point() else attn_mask
    if query.dim() == 4 and not is_causal and _same_for_heads(mask):
        # The query heads that share a key head are the queries of one product.
        num_shared = query.shape[1] // key.shape[1]
        if num_shared > 1 and mask is not None and mask.shape[2] > 1:
            mask = mask.repeat(1, 1, num_shared, 1)
        query = query.reshape(query.shape[0], key.shape[1], -1, query.shape[3])
    elif enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    # Not torch.nn.functional's name for it, which scripts replace.
    mixed = _ATEN.scaled_dot_product_attention(query, key, value, mask, is_causal=is_causal, scale=scale)
    return mixed.reshape(*query_BNTH.shape[:-1], value.shape[-1]).to(query_BNTH.dtype)


def _same_for_heads(mask: torch.Tensor | None) -> bool:
    return mask is None or (mask.dim() == 4 and mask.shape[1] == 1)
