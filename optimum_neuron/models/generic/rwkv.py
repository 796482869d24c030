"""RWKV's layers (Peng et al. 2023) with the state of a `StateCache`: transformers runs its recurrence token by token.

Shape legend: B rows, T tokens, D channels, L tokens of a span, I tokens that a token looks at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .cache import StateCache

if TYPE_CHECKING:
    from torch import nn

SPAN_LENGTH = 32
"""Tokens that are weighted against each other at once."""

_NOTHING = -1e38
"""Logarithm of the weight of a sum without terms, as in transformers."""


def attention(
    cache: StateCache, module: nn.Module, /, hidden: torch.Tensor, *_: object, **__: object
) -> tuple[torch.Tensor, None]:
    """Run the time mixing of a layer (sec. 3.1.2)."""
    shifted = tokens_before(cache, module.layer_id, 0, hidden)
    key = module.key(torch.lerp(shifted, hidden, module.time_mix_key)).float()
    value = module.value(torch.lerp(shifted, hidden, module.time_mix_value)).float()
    receptance = module.receptance(torch.lerp(shifted, hidden, module.time_mix_receptance)).sigmoid()
    cache.get_recurrent_state(module.layer_id)
    initial = cache.initial_state()
    if initial is None:
        zeros = torch.zeros_like(key[:, 0])
        initial = torch.stack((zeros, zeros, torch.full_like(zeros, _NOTHING)), 1)
    real, outputs, state = cache.real(hidden.shape[1]), [], initial
    for start in range(0, hidden.shape[1], SPAN_LENGTH):
        span = slice(start, start + SPAN_LENGTH)
        decay, bonus = -module.time_decay.float().exp(), module.time_first.float()
        output, state = _span(key[:, span], value[:, span], real[:, span], state, decay, bonus)
        outputs.append(output)
    cache.update_recurrent_state(state, module.layer_id)
    return module.output(receptance * torch.cat(outputs, 1).to(hidden.dtype)), None


def feed_forward(
    cache: StateCache, module: nn.Module, /, hidden: torch.Tensor, *_: object, **__: object
) -> tuple[torch.Tensor, None]:
    """Run the channel mixing of a layer (sec. 3.1.3)."""
    shifted = tokens_before(cache, module.layer_id, 1, hidden)
    key = module.key(torch.lerp(shifted, hidden, module.time_mix_key)).relu().square()
    receptance = module.receptance(torch.lerp(shifted, hidden, module.time_mix_receptance)).sigmoid()
    return receptance * module.value(key), None


def tokens_before(cache: StateCache, layer: int, index: int, hidden_BTD: torch.Tensor) -> torch.Tensor:
    """The token before each token: a convolution of two taps keeps one."""
    inputs = cache.update_conv_state(hidden_BTD.transpose(1, 2), layer, index, conv_kernel_size=2)
    return inputs[..., : hidden_BTD.shape[1]].transpose(1, 2)


def _span(
    key_BLD: torch.Tensor,
    value_BLD: torch.Tensor,
    real_BL: torch.Tensor,
    state_B3D: torch.Tensor,
    decay_D: torch.Tensor,
    bonus_D: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted averages of a span (eq. 16), and the state behind its real tokens.

    A state has a sum of values, a sum of weights, and the logarithm that both are scaled by.
    """
    steps = torch.arange(key_BLD.shape[1])
    numerator, denominator, scale = (part[:, None] for part in state_B3D.unbind(1))

    distance_LI = steps[:, None] - steps
    weight_BLID = key_BLD[:, None] + ((distance_LI - 1).clamp(min=0))[..., None] * decay_D
    weight_BLID = torch.where(distance_LI[..., None] == 0, key_BLD[:, None] + bonus_D, weight_BLID)
    weight_BLID = torch.where(distance_LI[..., None] < 0, _NOTHING, weight_BLID)
    before_BLD = scale + steps[:, None] * decay_D
    sums = _sums(weight_BLID, value_BLD[:, None], before_BLD, numerator, denominator)
    output_BLD = sums[0] / sums[1]

    num_real_B11 = real_BL.sum(1)[:, None, None]
    left_BL1 = num_real_B11 - 1 - steps[:, None]
    kept_BLD = torch.where(left_BL1 >= 0, key_BLD + left_BL1.clamp(min=0) * decay_D, _NOTHING)
    ended_B1D = scale + num_real_B11 * decay_D
    after = _sums(kept_BLD[:, None], value_BLD[:, None], ended_B1D, numerator, denominator)
    return output_BLD, torch.cat(after, 1)


def _sums(
    weight_BLID: torch.Tensor,
    value_B1ID: torch.Tensor,
    before_BLD: torch.Tensor,
    numerator_B1D: torch.Tensor,
    denominator_B1D: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sums of values and of weights [B, L, D] with those before, and the largest logarithm, which scales them."""
    largest_BLD = torch.maximum(weight_BLID.amax(2), before_BLD)
    factor_BLID, carried_BLD = torch.exp(weight_BLID - largest_BLD[:, :, None]), torch.exp(before_BLD - largest_BLD)
    values = (factor_BLID * value_B1ID).sum(2) + carried_BLD * numerator_B1D
    return values, factor_BLID.sum(2) + carried_BLD * denominator_B1D, largest_BLD
