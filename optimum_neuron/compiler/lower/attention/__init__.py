"""Attention in float32 on the host CPU, as an operator that Inductor calls from C++.

torch's own attention leaves the products to MKL, which runs narrow kernels on CPUs of other vendors, and to calls that
are too small for it. `kernel.py` says how the kernel is built and called.

    torch.ops.neuron_host.attention(query_BNTH, key_BKSH, value_BKSV, mask, is_causal, scale)

Shape legend: B batch, N query heads, K key heads, N a multiple of K; T queries, S keys; H width of queries and keys,
V of values.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ..choose import CpuFeatures
from ..kernel import TARGET_FLAGS, HostKernel

MIN_QUERIES = 4
"""From this many queries on it is the faster one: packing keys and values then takes less than it gains."""


def is_supported(features: CpuFeatures) -> bool:
    """Return whether there is a kernel for the CPU that has been measured."""
    return features.isa in TARGET_FLAGS


def is_faster(
    features: CpuFeatures, query_BNTH: torch.Tensor, key_BKSH: torch.Tensor, attn_mask: torch.Tensor | None
) -> bool:
    """Return whether `attend` can take the call and is faster than torch's operator."""
    kinds = (torch.float32, torch.bool)
    return (
        is_supported(features)
        and query_BNTH.dtype == key_BKSH.dtype == torch.float32
        and query_BNTH.dim() == key_BKSH.dim() == 4
        and query_BNTH.shape[2] >= MIN_QUERIES
        and (attn_mask is None or attn_mask.dtype in kinds)
    )


def is_in(body: torch.fx.GraphModule, features: CpuFeatures) -> bool:
    """Return whether host code of a body may call the kernel."""
    return is_supported(features) and any(
        node.target == torch.ops.aten.scaled_dot_product_attention.default
        and node.args[0].meta["val"].shape[-2] >= MIN_QUERIES
        for node in body.graph.nodes
    )


def attend(
    query_BNTH: torch.Tensor,
    key_BKSH: torch.Tensor,
    value_BKSV: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Scaled dot-product attention of float32 tensors, in place of torch's function of that name.

    Args:
        query_BNTH: queries, of any strides, as are the others.
        key_BKSH: keys; each is shared by N / K heads of queries.
        attn_mask: can be broadcast to [B, N, T, S]; bool, True where a query sees a key, or float32, added to scores.
        is_causal: query t sees no key behind t; with a mask both hold.
        scale: factor of the scores; H^-0.5 by default.

    Returns:
        [B, N, T, V], in memory as [B, T, N, V]; zeros for a query that sees no key.
    """
    if attn_mask is not None:
        # Expanded dimensions shrink to one, which the kernel broadcasts: Inductor would write all copies to memory.
        attn_mask = attn_mask[(None,) * (4 - attn_mask.dim())]
        for dim, stride in enumerate(attn_mask.stride()):
            attn_mask = attn_mask.narrow(dim, 0, 1) if stride == 0 else attn_mask
    scale = query_BNTH.shape[-1] ** -0.5 if scale is None else scale
    return ATTENTION(query_BNTH, key_BKSH, value_BKSV, attn_mask, is_causal, scale)


def _shape(
    query_BNTH: torch.Tensor, key_BKSH: torch.Tensor, value_BKSV: torch.Tensor, mask: torch.Tensor | None, *_: object
) -> torch.Tensor:
    batch, num_heads, num_queries, width = query_BNTH.shape
    num_key_heads, num_keys = key_BKSH.shape[1:3]
    torch._check(num_heads % num_key_heads == 0)
    torch._check(key_BKSH.shape == (batch, num_key_heads, num_keys, width))
    torch._check(value_BKSV.shape[:3] == key_BKSH.shape[:3])
    torch._check(query_BNTH.dtype == key_BKSH.dtype == value_BKSV.dtype == torch.float32)
    if mask is not None:
        torch._check(mask.dtype in (torch.float32, torch.bool) and mask.dim() == 4)
        scores = (batch, num_heads, num_queries, num_keys)
        torch._check(all(size in (1, whole) for size, whole in zip(mask.shape, scores, strict=True)))
    return query_BNTH.new_empty((batch, num_queries, num_heads, value_BKSV.shape[-1])).transpose(1, 2)


KERNEL = HostKernel(
    schema="neuron_host::attention(Tensor query, Tensor key, Tensor value, Tensor? mask, bool is_causal, float scale) "
    "-> Tensor",
    title="attention on the host",
    source=Path(__file__).with_name("attention.cpp"),
    shape=_shape,
    is_in=is_in,
    any_strides=True,
)
ATTENTION = KERNEL.operator
