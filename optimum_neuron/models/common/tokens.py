"""Which tokens of a call a core works on: all of them, unless sequence parallelism replaces the methods here.

Shape legend: B batch, T tokens, D hidden.
"""

from __future__ import annotations

import torch
from torch import nn


class TokenModule(nn.Module):
    """A module that adds to the residual stream, of which a core may have a part of the tokens."""

    def own_tokens(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Return the tokens of this core, of all."""
        return x_BTD

    def all_tokens(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Return all tokens, of those of this core."""
        return x_BTD
