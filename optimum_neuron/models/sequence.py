"""Sequence parallelism: between attention and feed-forward, each core has the residual stream of a part of the tokens.

A sum over the cores is scattered along the sequence instead of copied to all of them, norms and residual sums run on
the part, and what a projection needs is gathered. A call divides its tokens if it reads prompts from their beginning
and the cores divide their length. Others have too few tokens to divide: a decode step has one.

Source: Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models, section 4.2.2.

Shape legend: B batch, T tokens, D hidden.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..compiler import collectives
from .common import TokenModule


class TokenSplit:
    """How the cores of a group divide the tokens of the call that runs."""

    def __init__(self, group_size: int) -> None:
        self.group_size = group_size
        self._is_divided, self._num_rows = False, 0

    def attach(self, decoder: nn.Module) -> None:
        """Let a family's decoder divide the tokens of prompts; it is divided among the cores already."""
        decoder.register_forward_pre_hook(self._begin, with_kwargs=True)
        for module in decoder.modules():
            if isinstance(module, TokenModule):
                module.own_tokens, module.all_tokens = self._own, self._all  # type: ignore[method-assign]

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """Sum [B, T, D] or [B * T, D] over the cores: every core has the sums of its own tokens, or all of them."""
        if not self._is_divided:
            return collectives.ALL_REDUCE(x, self.group_size)
        if x.dim() == 3:
            return collectives.REDUCE_SCATTER(x, 1, self.group_size)
        x_BTD = x.unflatten(0, (self._num_rows, -1))
        return collectives.REDUCE_SCATTER(x_BTD, 1, self.group_size).flatten(0, 1)

    def _begin(self, decoder: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._num_rows, num_tokens = inputs[0].shape
        self._is_divided = options["num_slots"] is None and num_tokens % self.group_size == 0

    def _own(self, x_BTD: torch.Tensor) -> torch.Tensor:
        if not self._is_divided:
            return x_BTD
        parts = x_BTD.unflatten(1, (self.group_size, -1))
        return parts.index_select(1, collectives.RANK(self.group_size)[None]).squeeze(1)

    def _all(self, x_BTD: torch.Tensor) -> torch.Tensor:
        return collectives.ALL_GATHER(x_BTD, 1, self.group_size) if self._is_divided else x_BTD
