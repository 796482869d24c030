"""How a CPU carries out the chip's matmuls: same operands, float32 accumulation, good host speed.

TensorE multiplies bf16 operands and accumulates in float32. A single row reads every weight once, so the
product is written as multiply-and-sum, which Inductor turns into one pass over the bf16 weights. Many rows go
to oneDNN: in bf16 where the CPU has bf16 dot products (they accumulate in float32 too), else in float32 on upcast
weights. `functional.py` traces a subgraph with these in place; this module knows nothing of files or caches.

Shape legend: R rows, O output width, I input width; B batch, N query heads, K key heads, G = N / K, T queries,
S keys, H head width.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..quantized import DYNAMIC_LINEAR, PICK_EXPERTS, QUANTIZED_EXPERTS, QUANTIZED_EXPERTS_SUM, QUANTIZED_LINEAR
from . import attention, block_attention, few_rows, onednn, quantized, quantized_experts
from .choose import has_onednn, max_streamed_rows

if TYPE_CHECKING:
    from .choose import CpuFeatures

STREAMED_BLOCKS = 4
"""Output blocks whose rows are read side by side for one or two rows of `x`; half as many for more rows."""


MAX_SHIFTED_COPIES = 9
"""Up to this many elements in a window, it is cheaper to read shifted copies than to look for the border."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostArithmetic:
    """Implementations of the operators that decide speed, for one kind of CPU."""

    features: CpuFeatures

    def operators(self) -> dict[Any, Callable[..., torch.Tensor]]:
        """Return the ATen operators that have an implementation here."""
        return {
            torch.ops.aten.linear.default: self.linear,
            QUANTIZED_LINEAR: functools.partial(quantized.linear, self.features),
            DYNAMIC_LINEAR: functools.partial(quantized.dynamic_linear, self.features),
            PICK_EXPERTS: quantized_experts.picked,
            QUANTIZED_EXPERTS: quantized_experts.product,
            QUANTIZED_EXPERTS_SUM: quantized_experts.sum_of_experts,
            torch.ops.aten.scaled_dot_product_attention.default: self.attention,
            torch.ops.aten.max_pool2d.default: self.max_pool2d,
        }

    def can_group(self, dtype: torch.dtype) -> bool:
        """Return whether each expert can run on its rows only, which oneDNN multiplies."""
        has_product = dtype == torch.float32 or (dtype == torch.bfloat16 and self.features.has_bf16_dot)
        return has_product and has_onednn()

    def linear(self, x: torch.Tensor, weight_OI: torch.Tensor, bias_O: torch.Tensor | None = None) -> torch.Tensor:
        """`x @ weight.T + bias` in the dtype of `x`."""
        rows = x.numel() // x.shape[-1]
        if rows <= max_streamed_rows(x.dtype, self.features):
            total = _streamed_product(_computed_once(x.float()), weight_OI)
            total = total if bias_O is None else total + bias_O.float()
            return total.to(x.dtype)
        if few_rows.is_faster(self.features, x, weight_OI):
            total = few_rows.LINEAR(x.float().contiguous(), weight_OI)
            return (total if bias_O is None else total + bias_O.float()).to(x.dtype)
        if x.dtype == torch.float32 or self.features.has_bf16_dot:
            return onednn.LINEAR(x, weight_OI, bias_O)
        bias = None if bias_O is None else bias_O.float()
        return onednn.LINEAR(x.float(), weight_OI.float(), bias).to(x.dtype)

    def attention(
        self,
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
        """Scaled dot-product attention; one query streams keys and values once, in their own dtype."""
        batch, num_heads, num_queries, width = query_BNTH.shape
        is_cached = block_attention.is_faster(self.features, query_BNTH, key_BKSH, value_BKSH, attn_mask)
        if is_cached and attn_mask is not None and dropout_p == 0 and not is_causal:
            return block_attention.attend(query_BNTH, key_BKSH, value_BKSH, attn_mask, scale=scale)
        is_row_mask = attn_mask is None or (attn_mask.dtype == torch.bool and attn_mask.shape[1:-1] == (1, 1))
        # Also of 16-bit operands: their products are summed in float32 on the chip, and torch's kernel takes longer.
        query, key, value = query_BNTH.float(), key_BKSH.float(), value_BKSH.float()
        mask = attn_mask.float() if attn_mask is not None and attn_mask.is_floating_point() else attn_mask
        if dropout_p == 0 and attention.is_faster(self.features, query, key, mask):
            mixed = attention.attend(query, key, value, mask, is_causal=is_causal, scale=scale)
            return mixed.to(query_BNTH.dtype)
        if num_queries > 1 or is_causal or not is_row_mask:
            return torch.ops.aten.scaled_dot_product_attention(
                query_BNTH, key_BKSH, value_BKSH, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        query_BKGH = query_BNTH.float().view(batch, key_BKSH.shape[1], -1, width)
        scores_BKGS = _each_group(query_BKGH.unsqueeze(-2), key_BKSH.float(), -1) * (scale or width**-0.5)
        if attn_mask is not None:
            scores_BKGS = scores_BKGS.masked_fill(~attn_mask.view(attn_mask.shape[0], 1, 1, -1), float("-inf"))
        # Normalized after the sum over keys, not before: one division for each head instead of one for each key.
        weights_BKGS = (scores_BKGS - scores_BKGS.amax(-1, keepdim=True)).exp()
        mixed_BKGH = _each_group(weights_BKGS.unsqueeze(-1), value_BKSH.float(), -2)
        mixed_BKGH = mixed_BKGH / weights_BKGS.sum(-1, keepdim=True)
        return mixed_BKGH.view(batch, num_heads, 1, -1).to(query_BNTH.dtype)

    def max_pool2d(
        self,
        x_BCHW: torch.Tensor,
        kernel_size: list[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> torch.Tensor:
        """Largest of each window, as the maximum of shifted copies: one loop without a branch for the border."""
        size, step, pad = (_pair(value) for value in (kernel_size, stride or kernel_size, padding))
        small = math.prod(size) <= MAX_SHIFTED_COPIES and x_BCHW.is_floating_point() and x_BCHW.dim() == 4
        if not small or ceil_mode or _pair(dilation) != (1, 1):
            pool = torch.nn.functional.max_pool2d
            return pool(x_BCHW, kernel_size, list(stride) or None, list(padding), list(dilation), ceil_mode)
        padded = torch.nn.functional.pad(x_BCHW, (pad[1], pad[1], pad[0], pad[0]), value=float("-inf"))
        padded = _computed_once(padded.contiguous(memory_format=torch.channels_last))
        height, width = ((padded.shape[2 + axis] - size[axis]) // step[axis] + 1 for axis in (0, 1))
        copies = [
            padded[:, :, row : row + (height - 1) * step[0] + 1 : step[0], column :: step[1]][..., :width]
            for row in range(size[0])
            for column in range(size[1])
        ]
        return functools.reduce(torch.maximum, copies)


def _pair(value: Sequence[int]) -> tuple[int, int]:
    return (value[0], value[-1])


def _each_group(left: torch.Tensor, shared: torch.Tensor, dim: int) -> torch.Tensor:
    """Multiply and sum for each query head of a group; Inductor fuses them, so that `shared` is read once."""
    return torch.stack([(left[:, :, group] * shared).sum(dim) for group in range(left.shape[2])], 2)


def _computed_once(x: torch.Tensor) -> torch.Tensor:
    """Keep Inductor from computing `x` again inside the loops that read it; a fixed stride makes it a buffer."""
    from ...upstream.inductor import inductor_prims  # noqa: F401  (registers the operator)

    return torch.ops.prims.inductor_force_stride_order(x, x.stride())


def _streamed_product(x: torch.Tensor, weight_OI: torch.Tensor) -> torch.Tensor:
    """`x @ weight.T` as multiply-and-sum for each row, over blocks of outputs; Inductor fuses all into one loop.

    One row of the weight at a time waits for the adder: 18 GB/s on a core where four at a time reach 24. One expression
    for all rows of `x` would be a loop around the weight, which reads it once for each row.
    """
    x_RI = x.reshape(-1, x.shape[-1])
    num_blocks = STREAMED_BLOCKS if len(x_RI) <= 2 else STREAMED_BLOCKS // 2
    blocks = weight_OI.chunk(num_blocks if weight_OI.shape[0] % num_blocks == 0 else 1)
    rows = [torch.cat([(row * block.float()).sum(-1) for block in blocks]) for row in x_RI.unbind()]
    return torch.stack(rows).view(*x.shape[:-1], -1)
