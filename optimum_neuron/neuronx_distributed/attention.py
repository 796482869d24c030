"""`nki_flash_attn_func`, attention of training scripts, as torch's `scaled_dot_product_attention`.

out = nki_flash_attn_func(q, k, v, transpose_nki_inputs=False)
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ..errors import NotSupportedError, ShapeError


def nki_flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lnc: int = 1,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = True,
    mixed_precision: bool = True,
    seed: torch.Tensor | None = None,
    hardware_type: object = None,
    transpose_nki_inputs: bool = True,
) -> torch.Tensor:
    """Return attention [batch, heads, tokens, size of a head].

    Heads of keys and values may be fewer than those of queries, each for as many neighbors.

    Args:
        q: queries [batch, heads, size of a head, tokens]; without transpose_nki_inputs tokens come first.
        k: keys, in the same layout.
        v: values, in the same layout.
        lnc: physical cores of a core; results do not depend on it.
        dropout_p: share of weights to drop; with a seed it is an error, because torch's random numbers are used.
        softmax_scale: factor of scores; None: one over the root of the size of a head.
        causal: tokens see no later ones.
        mixed_precision: compute the softmax in float32, and the products in the dtype of the inputs.
        seed: None.
        hardware_type: results do not depend on it.
        transpose_nki_inputs: inputs have tokens in the last dimension.

    Raises:
        ShapeError: heads do not fit together, or a tensor does not have four dimensions.
    """
    if seed is not None and dropout_p:
        raise NotSupportedError(
            "Dropout takes torch's random numbers.", hint="Call torch.manual_seed, and pass no seed."
        )
    if not mixed_precision:
        raise NotSupportedError("The softmax is computed in float32.", hint="Leave mixed_precision out.")
    if transpose_nki_inputs:
        q, k, v = (one.transpose(-1, -2) for one in (q, k, v))
    shapes = [list(one.shape) for one in (q, k, v)]
    if any(len(shape) != 4 for shape in shapes) or q.shape[1] % k.shape[1] or k.shape[1] != v.shape[1]:
        message = f"Queries, keys, and values with heads before tokens are {', '.join(map(str, shapes))}."
        hint = "Pass four dimensions, and heads of queries that are a multiple of those of keys."
        raise ShapeError(message, hint=hint, shapes=shapes)
    groups = q.shape[1] // k.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, dropout_p=dropout_p, is_causal=causal, scale=softmax_scale, enable_gqa=groups > 1
    )
