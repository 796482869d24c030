"""GPT-NeoX and Pythia: parallel attention and feed-forward, each with its norm, and heads joined one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import common
from .common import Decoder, DecoderConfig, LayerKind, Norm

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL_TYPES = ("gpt_neox",)
WEIGHT_MAP = {
    "embed.weight": ("gpt_neox.embed_in.weight",),
    "layers.{}.attention_norm.weight": ("gpt_neox.layers.{}.input_layernorm.weight",),
    "layers.{}.attention.qkv.weight": ("gpt_neox.layers.{}.attention.query_key_value.weight",),
    "layers.{}.attention.out.weight": ("gpt_neox.layers.{}.attention.dense.weight",),
    "layers.{}.mlp_norm.weight": ("gpt_neox.layers.{}.post_attention_layernorm.weight",),
    "layers.{}.mlp.up.weight": ("gpt_neox.layers.{}.mlp.dense_h_to_4h.weight",),
    "layers.{}.mlp.down.weight": ("gpt_neox.layers.{}.mlp.dense_4h_to_h.weight",),
    "head.norm.weight": ("gpt_neox.final_layer_norm.weight",),
    "head.weight": ("lm_head.weight",),
}
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    """Say which option of a configuration this family does not implement, or None."""
    return common.activation_gap("hidden_act", config.hidden_act) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    """Return the decoder of a transformers configuration, with uninitialized parameters."""
    kind = LayerKind(rotary=common.read_rotary(config, is_partial=True))
    return Decoder(
        DecoderConfig(
            **common.read_sizes(config) | {"num_kv_heads": config.num_attention_heads},
            layers=(kind,) * config.num_hidden_layers,
            norm=Norm(eps=config.layer_norm_eps, kind="layer", has_bias=True),
            activation=config.hidden_act,
            has_qkv_bias=config.attention_bias,
            has_output_bias=config.attention_bias,
            qkv_order="groups",
            is_gated=False,
            has_mlp_bias=True,
            is_parallel=config.use_parallel_residual,
        )
    )
