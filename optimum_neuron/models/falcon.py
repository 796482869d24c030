"""Falcon with rotary positions: parallel attention and feed-forward, one or more key heads, joined projections."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

MODEL_TYPES = ("falcon",)
WEIGHT_MAP = {
    "embed.weight": ("transformer.word_embeddings.weight",),
    "layers.{}.shared_norm.weight": ("transformer.h.{}.input_layernorm.weight",),
    "layers.{}.attention_norm.weight": ("transformer.h.{}.ln_attn.weight",),
    "layers.{}.attention.qkv.weight": ("transformer.h.{}.self_attention.query_key_value.weight",),
    "layers.{}.attention.out.weight": ("transformer.h.{}.self_attention.dense.weight",),
    "layers.{}.mlp_norm.weight": ("transformer.h.{}.ln_mlp.weight",),
    "layers.{}.mlp.up.weight": ("transformer.h.{}.mlp.dense_h_to_4h.weight",),
    "layers.{}.mlp.down.weight": ("transformer.h.{}.mlp.dense_4h_to_h.weight",),
    "head.norm.weight": ("transformer.ln_f.weight",),
    "head.weight": ("lm_head.weight",),
}
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    if config.alibi:
        return "alibi=True"
    if not config.parallel_attn:
        return "parallel_attn=False"
    return common.activation_gap("activation", config.activation) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    kind = LayerKind(rotary=common.read_rotary(config))
    is_new = config.new_decoder_architecture
    num_norms = config.num_ln_in_parallel_attn or (2 if is_new else 1)
    num_kv_heads = config.num_kv_heads if is_new else 1 if config.multi_query else config.num_attention_heads
    return common.read_decoder(
        config,
        kind,
        num_kv_heads=num_kv_heads,
        intermediate_size=config.ffn_hidden_size,
        norm=Norm(eps=config.layer_norm_epsilon, kind="layer", has_bias=True),
        has_attention_bias=config.bias,
        qkv_order="kinds" if config.multi_query and not is_new else "groups",
        activation=config.activation,
        is_gated=False,
        has_mlp_bias=config.bias,
        is_parallel=True,
        has_shared_norm=num_norms == 1,
    )
