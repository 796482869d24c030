"""Tokens that ranks of data parallelism exchange, and get back: neighbors in a sequence choose alike experts.

shuffled, order = token_shuffle(hidden_states)
hidden_states = token_unshuffle(self.layer(shuffled), order)
"""

from __future__ import annotations

import torch

from .expert_regions import exchange
from .parallel_state import TOKEN_SHUFFLE


def token_shuffle(hidden_states: torch.Tensor, seed: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens in another order, each part of which is from another rank, and the order.

    Args:
        hidden_states: tokens in two dimensions, such as [S, B, H].
        seed: draws the order; None: torch's state of random numbers, which ranks with the same tokens have alike.

    Returns:
        The tokens [S, B, H], and the place of each before, [S * B].
    """
    flat = hidden_states.reshape(-1, hidden_states.shape[-1])
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    order = torch.randperm(len(flat), generator=generator).to(flat.device)
    return _exchanged(flat[order]).reshape(hidden_states.shape), order


def token_unshuffle(permuted_states: torch.Tensor, permutation: torch.Tensor) -> torch.Tensor:
    """Return tokens to their ranks and places.

    Args:
        permuted_states: results for the tokens that `token_shuffle` returned.
        permutation: their order.
    """
    flat = _exchanged(permuted_states.reshape(-1, permuted_states.shape[-1]))
    return torch.zeros_like(flat).index_copy(0, permutation, flat).reshape(permuted_states.shape)


def _exchanged(tokens: torch.Tensor) -> torch.Tensor:
    return exchange(tokens, 0, 0, TOKEN_SHUFFLE.group() if TOKEN_SHUFFLE.is_made() else None)
