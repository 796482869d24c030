"""GPT-NeoX and Pythia: parallel attention and feed-forward, each with its norm, and heads joined one by one."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

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
uncovered = common.uncovered


def build(config: PreTrainedConfig) -> Decoder:
    kind = LayerKind(rotary=common.read_rotary(config, is_partial=True))
    return common.read_decoder(
        config,
        kind,
        num_kv_heads=config.num_attention_heads,
        norm=Norm(eps=config.layer_norm_eps, kind="layer", has_bias=True),
        has_attention_bias=config.attention_bias,
        qkv_order="groups",
        is_gated=False,
        has_mlp_bias=True,
        is_parallel=config.use_parallel_residual,
    )
