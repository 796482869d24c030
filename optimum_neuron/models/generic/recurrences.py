"""Layers of transformers that keep a state outside its cache: their code with the state of a `StateCache`.

Griffin's layers (RecurrentGemma) keep theirs as attributes, lightning attention (MiniMax) in its own cache class,
RWKV's in a list of tensors, and all go on with one token at a time only. ZAYA's keep padding too.

Shape legend: B rows, T tokens, D hidden, C channels, H heads, K key heads, W width of a head.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ...upstream.contract import replaced
from ...upstream.modeling_files import (
    GRIFFIN_BLOCK,
    GRIFFIN_SCAN,
    LIGHTNING_ATTENTION,
    MINIMAX_CACHE,
    RWKV_ATTENTION,
    RWKV_FEED_FORWARD,
    ZAYA_PROJECTION,
)
from . import rwkv
from .cache import StateCache


@contextlib.contextmanager
def layers_from_cache(model: nn.Module, cache: StateCache) -> Iterator[None]:
    """Run these layers with the states of a cache, each of which sees real tokens only."""
    changed: list[tuple[Any, dict[str, Any]]] = []
    for path, module in model.named_modules():
        if GRIFFIN_BLOCK.matches(module):
            block: Any = module
            layer = next(int(part) for part in path.split(".") if part.isdigit())
            changed.append((module, {"forward": functools.partial(_griffin_block, cache, layer, module)}))
            changed.append((block.rg_lru, {GRIFFIN_SCAN.name: functools.partial(_gated_scan, cache, layer)}))
        elif LIGHTNING_ATTENTION.matches(module):
            changed.append((module, {"forward": functools.partial(_lightning_attention, cache, module)}))
        elif ZAYA_PROJECTION.matches(module):
            changed.append((module, {"forward": functools.partial(_convolved_projection, cache, module)}))
        elif RWKV_ATTENTION.matches(module):
            changed.append((module, {"forward": functools.partial(rwkv.attention, cache, module)}))
        elif RWKV_FEED_FORWARD.matches(module):
            changed.append((module, {"forward": functools.partial(rwkv.feed_forward, cache, module)}))
    file = sys.modules[type(model).__module__]
    if hasattr(file, MINIMAX_CACHE.name):
        # The model refuses every other class of cache.
        changed.append((file, {MINIMAX_CACHE.name: StateCache}))
    with contextlib.ExitStack() as stack:
        for owner, attributes in changed:
            stack.enter_context(replaced(owner, attributes))
        yield


def linear_recurrence(decay: torch.Tensor, added: torch.Tensor, initial: torch.Tensor) -> torch.Tensor:
    """Return all h[t] = decay[t] * h[t-1] + added[t] along the last dimension but one, from `initial` on.

    Each round joins spans of twice the length (Hillis and Steele 1986, sec. 3).
    """
    length, span = decay.shape[-2], 1
    added = torch.cat((added[..., :1, :] + decay[..., :1, :] * initial[..., None, :], added[..., 1:, :]), -2)
    while span < length:
        joined = added[..., span:, :] + decay[..., span:, :] * added[..., :-span, :]
        added = torch.cat((added[..., :span, :], joined), -2)
        decay = torch.cat((decay[..., :span, :], decay[..., span:, :] * decay[..., :-span, :]), -2)
        span *= 2
    return added


def _griffin_block(
    cache: StateCache,
    layer: int,
    block: nn.Module,
    /,
    input_states: torch.Tensor,
    position_ids: torch.Tensor,
    *_: object,
    **__: object,
) -> tuple[torch.Tensor, None]:
    """Griffin's recurrent block (De et al. 2024, sec. 2.3); transformers pads the convolution where tokens go on."""
    length = input_states.shape[1]
    inputs = block.linear_x(input_states).transpose(1, 2)
    inputs = cache.update_conv_state(inputs, layer, conv_kernel_size=block.conv1d_width)
    mixed_BCT = block.conv_1d(inputs)[..., : inputs.shape[-1]][..., -length:]
    mixed = block.rg_lru(mixed_BCT.transpose(1, 2), position_ids)
    return block.linear_out(mixed * block.act_fn(block.linear_y(input_states))), None


def _gated_scan(
    cache: StateCache,
    layer: int,
    hidden_states: torch.Tensor,
    recurrent_gate: torch.Tensor,
    reset: torch.Tensor,
    recurrent_states: None,
) -> tuple[torch.Tensor, None]:
    """The recurrence of the real-gated linear recurrent unit (De et al. 2024, eq. 4) on [B, T, C], in float32."""
    cache.get_recurrent_state(layer)
    initial = cache.initial_state()
    real_BT1 = cache.real(hidden_states.shape[1])[..., None]
    decay = torch.where(real_BT1, recurrent_gate.float() * ~reset, 1.0)
    added = torch.where(real_BT1, hidden_states.float(), 0.0)
    states = linear_recurrence(decay, added, torch.zeros_like(added[:, 0]) if initial is None else initial)
    cache.update_recurrent_state(states[:, -1], layer)
    return states.to(hidden_states.dtype), None


def _lightning_attention(
    cache: StateCache, block: nn.Module, /, hidden_states: torch.Tensor, *_: object, **__: object
) -> tuple[torch.Tensor, None]:
    """Lightning attention (Qin et al. 2024, sec. 3): one product over the new tokens, and one with the state."""
    shape = (*hidden_states.shape[:2], block.num_attention_heads, 3 * block.head_dim)
    qkv = block.act_fn(block.qkv_proj(hidden_states)).view(shape).transpose(1, 2).float()
    query, key, value = qkv.split(block.head_dim, 3)
    slope_H11, steps = block.slope_rate.float(), torch.arange(shape[1])
    distance_TT = steps[:, None] - steps
    decay_HTT = torch.where(distance_TT >= 0, torch.exp(-slope_H11 * distance_TT.clamp(min=0)), 0.0)
    mixed = (query @ key.transpose(2, 3) * decay_HTT) @ value

    cache.get_recurrent_state(block.layer_idx)
    initial = cache.initial_state()
    num_real_B1 = cache.real(shape[1]).sum(1, keepdim=True)
    left_B1T1 = (num_real_B1 - 1 - steps)[:, None, :, None]
    kept = torch.where(left_B1T1 >= 0, torch.exp(-slope_H11 * left_B1T1.clamp(min=0)), 0.0)
    state_BHWW = (key * kept).transpose(2, 3) @ value
    if initial is not None:
        mixed = mixed + query * torch.exp(-slope_H11 * (steps[:, None] + 1)) @ initial
        state_BHWW = state_BHWW + initial * torch.exp(-slope_H11 * num_real_B1[:, :, None, None])
    cache.update_recurrent_state(state_BHWW, block.layer_idx)

    mixed = mixed.transpose(1, 2).reshape(*shape[:2], -1).to(hidden_states.dtype)
    mixed = block.norm(mixed) * torch.sigmoid(block.output_gate(hidden_states))
    return block.out_proj(mixed), None


def _convolved_projection(
    cache: StateCache, block: nn.Module, /, hidden_states: torch.Tensor, *_: object, **__: object
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """ZAYA's queries and keys, convolved, and values, half of which come from the token before (Figliolia 2025)."""
    shape, num_kv_heads = (*hidden_states.shape[:2], -1, block.head_dim), block.num_key_value_heads
    query, key = block.q_proj(hidden_states), block.k_proj(hidden_states)
    own_key_BTKW = key.view(shape).repeat_interleave(block.num_key_value_groups, 2)
    mean_query_BTHW = (query.view(shape) + own_key_BTKW) * 0.5
    mean_key_BTKW = mean_query_BTHW.unflatten(2, (num_kv_heads, -1)).mean(3)

    inputs_BCT = torch.cat((query, key), -1).transpose(1, 2)
    inputs_BCT = cache.update_conv_state(inputs_BCT, block.layer_idx, conv_kernel_size=block.conv_kernel_size + 1)
    mixed_BTC = block.conv_qk_grouped(block.conv_qk_depthwise(inputs_BCT)).transpose(1, 2)
    mixed_query, mixed_key = mixed_BTC.split((query.shape[-1], key.shape[-1]), -1)

    before_BTD = rwkv.tokens_before(cache, block.layer_idx, 1, hidden_states)
    value = torch.cat((block.v_proj_current(hidden_states), block.v_proj_delayed(before_BTD)), -1).view(shape)
    return mixed_query.view(shape) + mean_query_BTHW, mixed_key.view(shape) + mean_key_BTKW, value
