"""Gemma 2: Gemma with norms of results too, bounded scores and logits, and windows in every second layer."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

MODEL_TYPES = ("gemma2",)
WEIGHT_MAP = common.WEIGHT_MAP | {
    "layers.{}.attention_result_norm.weight": ("model.layers.{}.post_attention_layernorm.weight",),
    "layers.{}.mlp_norm.weight": ("model.layers.{}.pre_feedforward_layernorm.weight",),
    "layers.{}.mlp_result_norm.weight": ("model.layers.{}.post_feedforward_layernorm.weight",),
}
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    if config.use_bidirectional_attention:
        return "use_bidirectional_attention=True"
    return common.activation_gap("hidden_activation", config.hidden_activation) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    rotary, scale = common.read_rotary(config), config.query_pre_attn_scalar**-0.5
    kinds = [LayerKind(rotary=rotary, window=window, scale=scale) for window in common.read_windows(config)]
    return common.read_decoder(
        config,
        kinds,
        norm=Norm(eps=config.rms_norm_eps, adds_one=True),
        activation=config.hidden_activation,
        has_attention_bias=config.attention_bias,
        embed_scale=config.hidden_size**0.5,
        norms="around",
        score_cap=config.attn_logit_softcapping,
        logits_cap=config.final_logit_softcapping,
    )
