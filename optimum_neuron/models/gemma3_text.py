"""Gemma 3: Gemma 2 with norms on queries and keys in place of bounds, and rotary positions by type of layer."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

MODEL_TYPES = ("gemma3_text",)
WEIGHT_MAP = {
    **common.WEIGHT_MAP,
    **common.HEAD_NORMS,
    "layers.{}.attention_result_norm.weight": ("model.layers.{}.post_attention_layernorm.weight",),
    "layers.{}.mlp_norm.weight": ("model.layers.{}.pre_feedforward_layernorm.weight",),
    "layers.{}.mlp_result_norm.weight": ("model.layers.{}.post_feedforward_layernorm.weight",),
}
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    if config.use_bidirectional_attention:
        return "use_bidirectional_attention=True"
    if config.attn_logit_softcapping is not None:
        return f"attn_logit_softcapping={config.attn_logit_softcapping}"
    return common.activation_gap("hidden_activation", config.hidden_activation) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    norm = Norm(eps=config.rms_norm_eps, adds_one=True)
    rotaries = {layer_type: common.read_rotary(config, layer_type) for layer_type in set(config.layer_types)}
    kinds = [
        LayerKind(rotary=rotaries[layer_type], window=window, scale=config.query_pre_attn_scalar**-0.5)
        for layer_type, window in zip(config.layer_types, common.read_windows(config), strict=True)
    ]
    return common.read_decoder(
        config,
        kinds,
        norm=norm,
        activation=config.hidden_activation,
        has_attention_bias=config.attention_bias,
        head_norm=norm,
        embed_scale=config.hidden_size**0.5,
        norms="around",
        logits_cap=config.final_logit_softcapping,
    )
