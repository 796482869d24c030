"""Rotary positions of queries and keys, whose heads may have the sequence last."""

from __future__ import annotations

import torch

from ..errors import UnsupportedDtypeError


def rotate_half(x: torch.Tensor, flash_attn: bool, transpose: bool) -> torch.Tensor:
    """Return the second half of each head, negated, before the first.

    Args:
        x: queries or keys.
        flash_attn: they are for `nki_flash_attn_func`.
        transpose: which then has the sequence last.
    """
    dim = -2 if flash_attn and transpose else -1
    first, second = x.chunk(2, dim)
    return torch.cat((-second, first), dim)


def apply_rotary_pos_emb(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: torch.Tensor | None,
    flash_attn: bool,
    transpose_nki_inputs: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return queries and keys, turned by their positions.

    Args:
        q: queries, [batch, heads, sequence, head], or with the sequence last.
        k: keys.
        cos: cosines, [batch, sequence, head], or of all positions, [position, head].
        sin: sines.
        position_ids: rows of `cos` and `sin`; None: they are in order.
        flash_attn: the result is for `nki_flash_attn_func`.
        transpose_nki_inputs: which then has the sequence last.
    """
    is_last = flash_attn and transpose_nki_inputs
    turns = []
    for one in (cos, sin):
        rows = (one if position_ids is None else one[position_ids]).unsqueeze(1)
        turns.append(rows.transpose(-1, -2) if is_last else rows)
    queries, keys = (x * turns[0] + rotate_half(x, flash_attn, transpose_nki_inputs) * turns[1] for x in (q, k))
    return queries, keys


def precompute_freqs_cis(
    dim: int, end: int, theta: float = 10000.0, device: torch.device | str | None = None
) -> torch.Tensor:
    """Return the angle of each position and pair of features, [position, dim / 2], in float32.

    Args:
        dim: size of a head.
        end: number of positions.
        theta: base of the frequencies.
        device: device of the result.
    """
    exponents = torch.arange(0, dim, 2, device=device)[: dim // 2].float() / dim
    return torch.outer(torch.arange(end, device=device).float(), theta**-exponents)


def apply_rotary_polar_compatible(
    query: torch.Tensor, key: torch.Tensor, freqs_cis: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return queries and keys, whose pairs of neighboring features are turned by angles, without complex numbers.

    Args:
        query: queries, [batch, sequence, heads, head].
        key: keys.
        freqs_cis: the angles, [batch, sequence, head / 2], in float32.

    Raises:
        UnsupportedDtypeError: the angles have another dtype.
    """
    if freqs_cis.dtype != torch.float32:
        message = f"The angles have the dtype {freqs_cis.dtype}, in which positions are not exact."
        raise UnsupportedDtypeError(message, hint="Pass float32.", dtype=str(freqs_cis.dtype))
    cos, sin = freqs_cis.cos().unsqueeze(-2), freqs_cis.sin().unsqueeze(-2)
    turned = []
    for x in (query, key):
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        turned.append(torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).type_as(x))
    return turned[0], turned[1]
