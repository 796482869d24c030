"""Layers of transformers that cannot be a static graph as they are, and functions that compute the same.

Four causes: shapes that follow the routing of tokens to experts (DBRX, LongCat-Flash, JetMoE) or the language of a row
(X-MOD), complex numbers, which the chip does not have (rotary positions of DeepSeek-V2 and Llama 4), positions that are
counted in the cache (Llama 4, RoFormer), and no cache (GPT).

Shape legend: B batch, T tokens, N all tokens, K experts of a token, P pairs of a token and one of its experts, E
experts, D input width, F output width, H head width.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import CausalLMOutput

from ...base.foreign import module_facts
from ...upstream.cache_argument import takes_cache
from ...upstream.contract import replaced
from ...upstream.modeling_files import (
    DBRX_EXPERTS,
    DEEPSEEK_V2_ROTARY,
    DEEPSEEK_V2_ROTATION,
    GPT,
    JETMOE_EXPERTS,
    JETMOE_ROUTER,
    LLAMA4_ROTARY,
    LLAMA4_ROTATION,
    LONGCAT_EXPERTS,
    ROFORMER_ATTENTION,
    XMOD_OUTPUT,
)


def replace_forwards(model: nn.Module) -> None:
    """Give the layers of a model that need it another `forward`, in place."""
    for module in model.modules():
        if forward := _FORWARDS.get(type(module).__name__):
            module.forward = types.MethodType(forward, module)
        elif ROFORMER_ATTENTION.matches(module):
            rotate: Any = module.apply_rotary_position_embeddings
            module.apply_rotary_position_embeddings = _of_rows(rotate)
        elif XMOD_OUTPUT.matches(module):
            module.lang_adapter = types.MethodType(_adapter_of(model.config.default_language), module)


@contextlib.contextmanager
def real_rotation(model: nn.Module) -> Iterator[None]:
    """Let the model's file rotate pairs by cosines and sines instead of complex numbers."""
    module = sys.modules[type(model).__module__]
    axis = _HEADS_AXIS.get(f"{module.__name__}.apply_rotary_emb")
    if axis is None:
        yield
        return

    def apply_rotary_emb(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        *rotated, angles = tensors
        return tuple(_rotate(x, angles.unsqueeze(axis)) for x in rotated)

    with replaced(module, {"apply_rotary_emb": apply_rotary_emb}):
        yield


@contextlib.contextmanager
def tuned_temperature(model: nn.Module, positions_BT: torch.Tensor) -> Iterator[None]:
    """Scale queries of Llama 4's layers without rotary positions by the position itself, not by a count of tokens."""
    layers: list[Any] = [
        module
        for module in model.modules()
        if (facts := module_facts(module)).attn_temperature_tuning and facts.use_rope == 0
    ]
    handles = []
    for layer in layers:
        scale_BT1 = torch.log1p(torch.floor((positions_BT[..., None].float() + 1) / layer.floor_scale))
        scale_BT1 = scale_BT1 * layer.attn_scale + 1
        handles.append(layer.q_proj.register_forward_hook(_times(scale_BT1)))
        layer.attn_temperature_tuning = False
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for layer in layers:
            layer.attn_temperature_tuning = True


def _times(scale: torch.Tensor) -> Callable[..., torch.Tensor]:
    return lambda _module, _inputs, output: (output * scale).to(output.dtype)


def _rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotate pairs (2i, 2i + 1) of the last dimension by angles [..., H / 2, 2] of cosines and sines, in float32."""
    (first, second), (cos, sin) = x.float().unflatten(-1, (-1, 2)).unbind(-1), angles.unbind(-1)
    return torch.stack((first * cos - second * sin, first * sin + second * cos), -1).flatten(-2).type_as(x)


def _angles(rotary: nn.Module, x: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
    """Cosines and sines [B, T, H / 2, 2] of positions."""
    angles = position_ids[..., None].float() * rotary.inv_freq.float()
    return torch.stack((angles.cos(), angles.sin()), -1) * rotary.attention_scaling


def _linear_of_pairs(x_PD: torch.Tensor, expert_P: torch.Tensor, weight_EFD: torch.Tensor) -> torch.Tensor:
    """Each row through its own expert: [P, F].

    Weights are copied for fewer rows than experts; for more, every expert runs on all rows.
    """
    if len(expert_P) < len(weight_EFD):
        return torch.bmm(weight_EFD[expert_P], x_PD[:, :, None])[:, :, 0]
    out_EPF = torch.matmul(x_PD, weight_EFD.transpose(1, 2))
    return out_EPF[expert_P, torch.arange(len(expert_P))]


def _sum_of_pairs(out_PD: torch.Tensor, weights_NK: torch.Tensor) -> torch.Tensor:
    """Weighted sum of each token's experts: [N, D]."""
    return (out_PD.unflatten(0, weights_NK.shape) * weights_NK[:, :, None]).sum(1)


def _dbrx_experts(
    experts: nn.Module, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    expert_P, mlp = top_k_index.flatten(), experts.mlp
    x_ND = hidden_states.reshape(-1, experts.hidden_size)
    x_PD = x_ND.repeat_interleave(top_k_index.shape[1], 0)
    gate, up, down = (w.view(-1, experts.ffn_hidden_size, experts.hidden_size) for w in (mlp.w1, mlp.v1, mlp.w2))
    wide_PF = mlp.activation_fn(_linear_of_pairs(x_PD, expert_P, gate)) * _linear_of_pairs(x_PD, expert_P, up)
    out_PD = _linear_of_pairs(wide_PF, expert_P, down.transpose(1, 2))
    return _sum_of_pairs(out_PD, top_k_weights).to(x_ND.dtype).view(hidden_states.shape)


def _longcat_experts(
    experts: nn.Module, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    index_P = top_k_index.flatten()
    x_PD = hidden_states.repeat_interleave(top_k_index.shape[1], 0)
    # Experts with numbers beyond these return their input.
    expert_P = index_P.clamp(max=experts.num_routed_experts - 1)
    weight_EFD = experts.gate_up_proj[: experts.num_routed_experts]
    gate, up = _linear_of_pairs(x_PD, expert_P, weight_EFD).chunk(2, -1)
    out_PD = _linear_of_pairs(experts.act_fn(gate) * up, expert_P, experts.down_proj)
    out_PD = torch.where(index_P[:, None] < experts.num_routed_experts, out_PD, x_PD)
    return _sum_of_pairs(out_PD, top_k_weights).to(hidden_states.dtype)


def _jetmoe_router(router: nn.Module, hidden_states: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What transformers' router returns, with pairs in the order of tokens and the expert of each for the counts."""
    logits_NE = router.layer(hidden_states).float()
    logits_NK, expert_NK = logits_NE.topk(router.top_k, dim=1)
    gates_NK = torch.softmax(logits_NK, 1).type_as(hidden_states)
    pair_P = torch.arange(expert_NK.numel())
    return pair_P, pair_P // router.top_k, gates_NK.flatten(), expert_NK.flatten(), logits_NE


def _jetmoe_experts(experts: nn.Module, inputs: torch.Tensor, expert_size: torch.Tensor) -> torch.Tensor:
    return _linear_of_pairs(inputs, expert_size, experts.weight)


def _of_rows(rotate: Callable[..., Any]) -> Callable[..., Any]:
    """RoFormer's rotation, with positions of each row where its encoder puts those of one: [1, 1, B, T, H]."""
    return lambda positions, *tensors: rotate(positions[0, 0, :, None], *tensors)


def _adapter_of(language: str) -> Callable[..., torch.Tensor]:
    """X-MOD's adapter where every row has one language, as without `lang_ids`."""

    def lang_adapter(output: Any, lang_ids: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
        norm = output.adapter_layer_norm or (output.LayerNorm if output.adapter_reuse_layer_norm else nn.Identity())
        x = norm(hidden_states)
        return output.adapter_modules[language](x) + (x if output.ln_before_adapter else hidden_states)

    return lang_adapter


@takes_cache
def _gpt1(
    model: nn.Module,
    input_ids: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    attention_mask: torch.Tensor | None = None,
    cache: Any = None,
    inputs_embeds: torch.Tensor | None = None,
    use_cache: bool = True,
) -> CausalLMOutput:
    """GPT with a cache: transformers' own code reads the whole sequence for each token (Radford et al. 2018, sec. 3.1).

    `attention_mask` is added to the scores.
    """
    gpt = model.transformer
    x_BTD = gpt.tokens_embed(input_ids) if inputs_embeds is None else inputs_embeds
    x_BTD = x_BTD + gpt.positions_embed(position_ids)
    for layer, block in enumerate(gpt.h):
        attn = block.attn
        heads = attn.c_attn(x_BTD).unflatten(-1, (3, attn.n_head, -1)).permute(2, 0, 3, 1, 4)
        key, value = cache.update(heads[1], heads[2], layer)
        scale = None if attn.scale else 1.0
        mixed = nn.functional.scaled_dot_product_attention(heads[0], key, value, attn_mask=attention_mask, scale=scale)
        x_BTD = block.ln_1(x_BTD + attn.c_proj(mixed.transpose(1, 2).flatten(2)))
        x_BTD = block.ln_2(x_BTD + block.mlp(x_BTD))
    return CausalLMOutput(logits=model.lm_head(x_BTD))


_FORWARDS: dict[str, Callable[..., Any]] = {
    DBRX_EXPERTS.name: _dbrx_experts,
    LONGCAT_EXPERTS.name: _longcat_experts,
    JETMOE_ROUTER.name: _jetmoe_router,
    JETMOE_EXPERTS.name: _jetmoe_experts,
    DEEPSEEK_V2_ROTARY.name: _angles,
    LLAMA4_ROTARY.name: _angles,
    GPT.name: _gpt1,
}
"""Class of a layer to its `forward`."""

_HEADS_AXIS = {DEEPSEEK_V2_ROTATION.target: 1, LLAMA4_ROTATION.target: 2}
"""Function of a file with complex rotary positions to the dimension of heads in what it rotates."""
