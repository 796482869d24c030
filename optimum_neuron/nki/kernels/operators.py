"""Flash attention as an operator of PyTorch, with autograd; in a compiled model it is a kernel.

Shape legend: B batch, N query heads, K key heads, T tokens, H head width.
"""

from __future__ import annotations

from typing import Any

import torch

from ..custom_ops import nki_op
from .flash_attention import ROWS, flash_attention
from .flash_attention_backward import flash_attention_backward

MAX_WIDTH = 128
"""Widest head: it is on the partitions of a matmul."""


def refusal(*, num_tokens: int, head_dim: int) -> str | None:
    """Say why the kernel cannot attend with these sizes; None if it can."""
    if head_dim > MAX_WIDTH:
        return f"heads of width {head_dim} do not fit the {MAX_WIDTH} partitions of a matmul"
    if num_tokens % ROWS:
        return f"prompts of {num_tokens} tokens are not divided into blocks of {ROWS}"
    return None


@nki_op("optimum_neuron::flash_attention", mutates_args=())
def _forward(
    query_BNTH: torch.Tensor, key_BKTH: torch.Tensor, value_BKTH: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    batch = query_BNTH.shape[0]
    values = value_BKTH.flatten(0, 1).contiguous()
    out, sums = flash_attention(_transposed(query_BNTH), _transposed(key_BKTH), values, scale)
    return out.unflatten(0, (batch, -1)), sums.unflatten(0, (batch, -1))


@nki_op("optimum_neuron::flash_attention_backward", mutates_args=())
def _backward(
    query_BNTH: torch.Tensor,
    key_BKTH: torch.Tensor,
    value_BKTH: torch.Tensor,
    out_BNTH: torch.Tensor,
    sums_BNT1: torch.Tensor,
    grad_BNTH: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch = query_BNTH.shape[0]
    out, sums, grad = (x.flatten(0, 1).contiguous() for x in (out_BNTH, sums_BNT1, grad_BNTH))
    rows = (query_BNTH.flatten(0, 1).contiguous(), key_BKTH.flatten(0, 1).contiguous(), _transposed(grad_BNTH))
    turned = (_transposed(x) for x in (query_BNTH, key_BKTH, value_BKTH))
    dq, dk, dv = flash_attention_backward(*turned, out, sums, grad, rows, scale)
    return dq.unflatten(0, (batch, -1)), dk.unflatten(0, (batch, -1)), dv.unflatten(0, (batch, -1))


def _transposed(x_BNTH: torch.Tensor) -> torch.Tensor:
    return x_BNTH.flatten(0, 1).transpose(1, 2).contiguous()


def _keep(
    ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]
) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)


def _gradient(
    ctx: torch.autograd.function.FunctionCtx, grad_BNTH: torch.Tensor, _: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    query, key, value, out, sums = ctx.saved_tensors
    return (*_backward(query, key, value, out, sums, grad_BNTH.contiguous(), ctx.scale), None)


_forward.register_autograd(_gradient, setup_context=_keep)


def attention(
    query_BNTH: torch.Tensor, key_BKTH: torch.Tensor, value_BKTH: torch.Tensor, scale: float | None = None
) -> torch.Tensor:
    """Return causal attention [B, N, T, H] of tokens that begin a sequence, by flash attention on one core.

    Args:
        query_BNTH: queries; T is a multiple of 128, and H at most 128.
        key_BKTH: keys; K divides N.
        value_BKTH: values.
        scale: Factor on scores; None for 1 / sqrt(H).

    Example:
        ```python
        import torch
        from torch.nn import functional as F

        from optimum_neuron.nki.kernels import attention

        query, key, value = torch.randn(1, 4, 128, 16), torch.randn(1, 2, 128, 16), torch.randn(1, 2, 128, 16)
        plain = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        torch.testing.assert_close(attention(query, key, value), plain)
        ```
    """
    width = query_BNTH.shape[-1]
    result: torch.Tensor = _forward(query_BNTH, key_BKTH, value_BKTH, width**-0.5 if scale is None else scale)[0]
    return result
