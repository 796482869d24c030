"""OPT: learned positions that begin at row 2, layer norms, and a plain feed-forward."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

MODEL_TYPES = ("opt",)
WEIGHT_MAP = {
    "embed.weight": ("model.decoder.embed_tokens.weight",),
    "position_embed.weight": ("model.decoder.embed_positions.weight",),
    "layers.{}.attention_norm.weight": ("model.decoder.layers.{}.self_attn_layer_norm.weight",),
    "layers.{}.attention.qkv.weight": tuple(
        f"model.decoder.layers.{{}}.self_attn.{name}_proj.weight" for name in "qkv"
    ),
    "layers.{}.attention.out.weight": ("model.decoder.layers.{}.self_attn.out_proj.weight",),
    "layers.{}.mlp_norm.weight": ("model.decoder.layers.{}.final_layer_norm.weight",),
    "layers.{}.mlp.up.weight": ("model.decoder.layers.{}.fc1.weight",),
    "layers.{}.mlp.down.weight": ("model.decoder.layers.{}.fc2.weight",),
    "head.norm.weight": ("model.decoder.final_layer_norm.weight",),
    "head.weight": ("lm_head.weight",),
}
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    if not config.do_layer_norm_before or config._remove_final_layer_norm:
        return f"do_layer_norm_before={config.do_layer_norm_before} with norms elsewhere"
    if config.word_embed_proj_dim != config.hidden_size:
        return f"word_embed_proj_dim={config.word_embed_proj_dim}"
    if not config.layer_norm_elementwise_affine:
        return "layer_norm_elementwise_affine=False"
    return common.activation_gap("activation_function", config.activation_function)


def build(config: PreTrainedConfig) -> Decoder:
    return common.read_decoder(
        config,
        LayerKind(),
        num_kv_heads=config.num_attention_heads,
        intermediate_size=config.ffn_dim,
        norm=Norm(eps=1e-5, kind="layer", has_bias=True),
        num_positions=config.max_position_embeddings + 2,
        position_offset=2,
        has_attention_bias=config.enable_bias,
        activation=config.activation_function,
        is_gated=False,
        has_mlp_bias=config.enable_bias,
    )
