"""OLMo 2: Llama with norms of results only, and a norm over all queries and all keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import common
from .common import Decoder, DecoderConfig, LayerKind, Norm

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL_TYPES = ("olmo2",)
WEIGHT_MAP = common.WEIGHT_MAP | {
    "layers.{}.attention.query_norm.weight": ("model.layers.{}.self_attn.q_norm.weight",),
    "layers.{}.attention.key_norm.weight": ("model.layers.{}.self_attn.k_norm.weight",),
    "layers.{}.attention_result_norm.weight": ("model.layers.{}.post_attention_layernorm.weight",),
    "layers.{}.mlp_result_norm.weight": ("model.layers.{}.post_feedforward_layernorm.weight",),
}
PLAN = common.PLAN | {
    "layers.*.attention.query_norm": "norm_of_heads",
    "layers.*.attention.key_norm": "norm_of_heads",
}


def uncovered(config: PreTrainedConfig) -> str | None:
    """Say which option of a configuration this family does not implement, or None."""
    return common.activation_gap("hidden_act", config.hidden_act) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    """Return the decoder of a transformers configuration, with uninitialized parameters."""
    kind = LayerKind(rotary=common.read_rotary(config))
    return Decoder(
        DecoderConfig(
            **common.read_sizes(config),
            layers=(kind,) * config.num_hidden_layers,
            norm=Norm(eps=config.rms_norm_eps),
            activation=config.hidden_act,
            has_qkv_bias=config.attention_bias,
            has_output_bias=config.attention_bias,
            head_norm=Norm(eps=config.rms_norm_eps),
            head_norm_width="all heads",
            norms="after",
        )
    )
