"""Bloom: biases by distance in place of positions, a norm of embeddings, and heads joined one by one."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

MODEL_TYPES = ("bloom",)
WEIGHT_MAP = {
    "embed.weight": ("transformer.word_embeddings.weight",),
    "embed_norm.weight": ("transformer.word_embeddings_layernorm.weight",),
    "layers.{}.attention_norm.weight": ("transformer.h.{}.input_layernorm.weight",),
    "layers.{}.attention.qkv.weight": ("transformer.h.{}.self_attention.query_key_value.weight",),
    "layers.{}.attention.out.weight": ("transformer.h.{}.self_attention.dense.weight",),
    "layers.{}.mlp_norm.weight": ("transformer.h.{}.post_attention_layernorm.weight",),
    "layers.{}.mlp.up.weight": ("transformer.h.{}.mlp.dense_h_to_4h.weight",),
    "layers.{}.mlp.down.weight": ("transformer.h.{}.mlp.dense_4h_to_h.weight",),
    "head.norm.weight": ("transformer.ln_f.weight",),
    "head.weight": ("lm_head.weight",),
}
PLAN = common.PLAN | {"alibi": "slopes"}


def uncovered(config: PreTrainedConfig) -> str | None:
    if config.apply_residual_connection_post_layernorm:
        return "apply_residual_connection_post_layernorm=True"
    return None


def build(config: PreTrainedConfig) -> Decoder:
    norm = Norm(eps=config.layer_norm_epsilon, kind="layer", has_bias=True)
    num_heads = config.num_attention_heads
    return common.read_decoder(
        config,
        LayerKind(),
        num_kv_heads=num_heads,
        intermediate_size=4 * config.hidden_size,
        norm=norm,
        embed_norm=norm,
        alibi_slopes=common.slopes_by_halves(num_heads),
        has_attention_bias=True,
        qkv_order="groups",
        activation="gelu_pytorch_tanh",
        is_gated=False,
        has_mlp_bias=True,
    )
