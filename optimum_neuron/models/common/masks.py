"""Which keys a query sees: those before it, of its window, of its chunk.

Shape legend: B batch, T new tokens.
"""

from __future__ import annotations

import torch

from .prompt import Prompt


def seen_keys(queries: torch.Tensor, keys: torch.Tensor, window: int | None, chunk: int | None) -> torch.Tensor:
    """Whether queries at some positions see keys at others, by broadcasting: only keys before them, and themselves.

    Only the last `window` positions, or those of the query's own `chunk`, if these are numbers.
    """
    mask = keys <= queries
    if chunk:
        mask = mask & (keys // chunk == queries // chunk)
    return mask & (keys > queries - window) if window else mask


def visible_slots(
    positions_BT: torch.Tensor,
    num_keys: int,
    window: int | None,
    chunk: int | None = None,
    prompt: Prompt | None = None,
) -> torch.Tensor:
    """Which slots each query sees where a token's slot is its position: boolean [B, 1, T, num_keys].

    Also those of the query's own block of a `prompt` that has some.
    """
    queries, slots = positions_BT[:, None, :, None], torch.arange(num_keys)
    mask = seen_keys(queries, slots, window, chunk)
    together = None if prompt is None else prompt.together
    if prompt is None or together is None:
        return mask
    return mask | (together & (slots > queries - window) if window and not prompt.blocks_pass_windows else together)
