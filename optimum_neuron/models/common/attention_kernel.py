"""Attention of prompts by an NKI kernel: which layers can have it, and why others keep the operators of PyTorch.

The kernel attends as plain causal attention does. Layers that look at less, or add to their scores, keep their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.core import AttentionKernel, Choice, Rejected
from ...errors import ConfigError
from .attention import Attention

if TYPE_CHECKING:
    from .decoder import Decoder


def choose_attention(decoder: Decoder, kernel: AttentionKernel) -> Choice[str]:
    """Give layers the attention kernel where they support it, and return which ones."""
    obstacles = {number: _obstacle(decoder, number) for number in range(len(decoder.layers))}
    able = [number for number, obstacle in obstacles.items() if obstacle is None]
    reasons = dict.fromkeys(obstacle for obstacle in obstacles.values() if obstacle is not None)
    if not able:
        raise unsupported("; ".join(reasons))
    from ...nki.kernels import attention

    for number in able:
        decoder.layers[number].attention.kernel = attention
    reason = f"asked for: flash attention in the prompts of {len(able)} of {len(obstacles)} layers"
    return Choice(value=kernel, reason=reason, rejected=tuple(Rejected(candidate="nki", reason=r) for r in reasons))


def unsupported(obstacle: str) -> ConfigError:
    """Return the error for a model whose attention no kernel here computes."""
    message = f'attention_kernel="nki" is not supported for this model: {obstacle}.'
    hint = "Remove attention_kernel: attention is then compiled from the operators of PyTorch."
    return ConfigError(message, hint=hint, option="attention_kernel", value="nki", reason=obstacle)


def _obstacle(decoder: Decoder, number: int) -> str | None:
    """Say why a layer cannot attend by the kernel; None if it can."""
    from ...nki.kernels import refusal

    attention, kind, config = decoder.layers[number].attention, decoder.config.layers[number], decoder.config
    if type(attention) is not Attention:
        return f"{type(attention).__name__} is another kind of attention"
    if kind.reach is not None:
        return f"queries of some layers see {kind.reach} tokens only"
    if config.alibi_slopes:
        return "positions are added to the scores (ALiBi)"
    if config.score_cap is not None:
        return "scores are bounded"
    return refusal(num_tokens=0, head_dim=config.head_dim)
