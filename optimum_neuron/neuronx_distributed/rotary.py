"""Rotary positions of queries and keys, whose heads may have the sequence last."""

from __future__ import annotations

import torch


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
