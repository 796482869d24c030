"""Attention in which each head has a sink: a score without a value, so that a query may attend to nothing.

Source: Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks, section 3; gpt-oss's model card.

Shape legend: B batch, T new tokens, S keys, N query heads, K key heads, G query heads of a key head, H head width.
"""

from __future__ import annotations

import torch
from torch import nn

from .attention import Attention
from .config import DecoderConfig, LayerKind
from .states import visible_slots


class SinkAttention(Attention):
    """Attention with a learned sink for each query head."""

    def __init__(self, config: DecoderConfig, kind: LayerKind) -> None:
        super().__init__(config, kind)
        self.sinks = nn.Parameter(torch.zeros(config.num_heads))

    def _attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        num_kv_heads, num_tokens = key.shape[1], query.shape[2]
        if mask is None:
            mask = visible_slots(torch.arange(num_tokens)[None], num_tokens, None)
        query_BKGTH = query.unflatten(1, (num_kv_heads, -1))
        scores_BKGTS = torch.matmul(query_BKGTH, key[:, :, None].transpose(-1, -2)).float()
        scores_BKGTS = scores_BKGTS * (self.scale or self.head_dim**-0.5)
        scores_BKGTS = scores_BKGTS.masked_fill(~mask[:, :, None], float("-inf"))
        sinks_KG11 = self.sinks.float().view(num_kv_heads, -1, 1, 1)
        sinks_BKGT1 = sinks_KG11.expand(scores_BKGTS.shape[0], -1, -1, num_tokens, -1)
        weights_BKGTS = torch.cat((scores_BKGTS, sinks_BKGT1), -1).softmax(-1)[..., :-1]
        return torch.matmul(weights_BKGTS.to(value.dtype), value[:, :, None]).flatten(1, 2)
