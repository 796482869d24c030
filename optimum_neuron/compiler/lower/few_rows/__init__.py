"""Products of a few rows with a weight on the host CPU, as an operator that Inductor calls from C++.

A step of a decoder with several sequences reads every weight once. oneDNN converts a bfloat16 weight before it
multiplies, or takes as long as for many rows; `few_rows.cpp` converts it in registers.

    torch.ops.neuron_host.few_rows(x, weight_OI)
"""

from __future__ import annotations

from pathlib import Path

import torch

from ..choose import CpuFeatures, max_streamed_rows
from ..kernel import TARGET_FLAGS, HostKernel

MAX_FEW_ROWS, MAX_ROWS_BESIDE_DOTS = 16, 8
"""Up to this many rows it is faster than oneDNN; the second where oneDNN multiplies bfloat16 numbers as they are."""


def is_faster(features: CpuFeatures, x: torch.Tensor, weight_OI: torch.Tensor) -> bool:
    """Return whether the kernel can multiply by a weight, and is the fastest way."""
    rows = x.numel() // x.shape[-1]
    is_direct = x.dtype == weight_OI.dtype == torch.bfloat16 and features.has_bf16_dot
    most = MAX_ROWS_BESIDE_DOTS if is_direct else MAX_FEW_ROWS
    is_read = weight_OI.dtype in (torch.float32, torch.bfloat16) and weight_OI.is_contiguous()
    return features.isa in TARGET_FLAGS and is_read and max_streamed_rows(x.dtype, features) < rows <= most


def stored_weight(node: torch.fx.Node) -> torch.fx.Node | None:
    """Return the bfloat16 weight whose float32 copy a matmul takes; None where it takes another one."""
    cast = node.args[1]
    if not isinstance(cast, torch.fx.Node) or cast.target != torch.ops.aten.to.dtype:
        return None
    source = cast.args[0]
    is_wider = isinstance(source, torch.fx.Node) and source.meta["val"].dtype == torch.bfloat16
    return source if is_wider and cast.args[1] == torch.float32 else None


def is_in(body: torch.fx.GraphModule, features: CpuFeatures) -> bool:
    """Return whether host code of a body may call the kernel."""
    products = body.graph.find_nodes(op="call_function", target=torch.ops.aten.linear.default)
    return any(is_faster(features, *(node.args[i].meta["val"] for i in (0, 1))) for node in products)


def _shape(x: torch.Tensor, weight_OI: torch.Tensor) -> torch.Tensor:
    torch._check(x.dtype == torch.float32 and x.shape[-1] == weight_OI.shape[1])
    return x.new_empty((*x.shape[:-1], weight_OI.shape[0]))


KERNEL = HostKernel(
    schema="neuron_host::few_rows(Tensor x, Tensor weight) -> Tensor",
    title="products of a few rows on the host",
    source=Path(__file__).with_name("few_rows.cpp"),
    shape=_shape,
    is_in=is_in,
)
LINEAR = KERNEL.operator
