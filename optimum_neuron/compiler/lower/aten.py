"""Run a subprogram operator by operator through ATen: no compiler, ready at once, the reference for compiled code.

Two operators are called in another form with the same arithmetic, because ATen's own would copy more than it computes:
attention with shared key heads, and matrix products with weights that are cast first.

Shape legend: B batch, N query heads, K key heads, G = N / K, T queries, S keys, H head width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..sources import forget_source_at_end

if TYPE_CHECKING:
    import torch
    from torch import fx

HostFunction = Callable[["list[torch.Tensor]"], "list[torch.Tensor]"]
"""A subprogram that can be called: tensors in, tensors out, state changed in place."""

CHUNK_BYTES = 1 << 20
"""Size of the part of a weight that is cast at once, so that the product reads it from the CPU's caches."""


def aten_function(body: fx.GraphModule) -> HostFunction:
    """Return a subprogram as a host function; the subprogram itself is not changed."""
    forward = _rewritten(body).forward

    def call(arguments: list[torch.Tensor]) -> list[torch.Tensor]:
        return list(forward(*arguments))

    return call


def _rewritten(body: fx.GraphModule) -> fx.GraphModule:
    import torch
    from torch import fx

    graph, is_changed = fx.Graph(), False
    graph.output(graph.graph_copy(body.graph, {}))
    for node in graph.nodes:
        if node.target == torch.ops.aten.scaled_dot_product_attention.default:
            node.target, is_changed = attention, True
        elif node.target == torch.ops.aten.linear.default and _is_cast_argument(cast := node.args[1]):
            node.target, node.args, is_changed = linear_of_cast, (node.args[0], cast.args[0], *node.args[2:]), True
            if not cast.users:
                graph.erase_node(cast)
    if not is_changed:
        return body
    rewritten = fx.GraphModule(body, graph)
    forget_source_at_end(rewritten)
    return rewritten


def _is_cast_argument(node: fx.Node) -> bool:
    """Whether a node is an argument cast to float32."""
    import torch

    return (
        node.target == torch.ops.aten.to.dtype
        and node.args[1] == torch.float32
        and node.args[0].op == "placeholder"
        and node.args[0].meta["val"].dim() == 2
    )


def linear_of_cast(x: torch.Tensor, weight_OI: torch.Tensor, bias_O: torch.Tensor | None = None) -> torch.Tensor:
    """Return `x @ weight.float().T + bias`, with the weight cast part by part."""
    import torch

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
    """Scaled dot-product attention in float32, as ATen's operator, but key heads are not repeated for one query."""
    import torch

    if dropout_p:
        return torch.ops.aten.scaled_dot_product_attention(
            query_BNTH, key_BKSH, value_BKSH, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    query, key, value = query_BNTH.float(), key_BKSH.float(), value_BKSH.float()
    mask = attn_mask.float() if attn_mask is not None and attn_mask.is_floating_point() else attn_mask
    if query.dim() == 4 and query.shape[2] == 1 and not is_causal and _same_for_heads(mask):
        return _one_query(query, key, value, mask, scale).to(query_BNTH.dtype)
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    # Its kernel that keeps no scores takes contiguous keys only. Scripts replace the function in torch.nn.functional.
    mixed = torch.ops.aten.scaled_dot_product_attention(
        query, key.contiguous(), value.contiguous(), mask, is_causal=is_causal, scale=scale
    )
    return mixed.to(query_BNTH.dtype)


def _same_for_heads(mask: torch.Tensor | None) -> bool:
    return mask is None or (mask.dim() == 4 and mask.shape[1] == 1)


def _one_query(
    query_BN1H: torch.Tensor,
    key_BKSH: torch.Tensor,
    value_BKSH: torch.Tensor,
    mask_B11S: torch.Tensor | None,
    scale: float | None,
) -> torch.Tensor:
    """Attention of one query; the query heads that share a key head are the rows of one product."""
    import torch

    batch, num_heads, _, width = query_BN1H.shape
    query_BKGH = query_BN1H.reshape(batch, key_BKSH.shape[1], -1, width) * (width**-0.5 if scale is None else scale)
    scores_BKGS = query_BKGH @ key_BKSH.transpose(-1, -2)
    if mask_B11S is not None and mask_B11S.dtype == torch.bool:
        scores_BKGS = scores_BKGS.masked_fill(~mask_B11S, float("-inf"))
    elif mask_B11S is not None:
        scores_BKGS = scores_BKGS + mask_B11S
    mixed_BKGH = scores_BKGS.softmax(-1) @ value_BKSH
    return mixed_BKGH.reshape(batch, num_heads, 1, value_BKSH.shape[-1])
