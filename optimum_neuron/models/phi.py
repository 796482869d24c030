"""Phi-1, Phi-1.5 and Phi-2: parallel attention and plain feed-forward with one layer norm, partial rotary positions."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

MODEL_TYPES = ("phi",)
WEIGHT_MAP = {
    "embed.weight": ("model.embed_tokens.weight",),
    "layers.{}.attention.query_norm.weight": ("model.layers.{}.self_attn.q_layernorm.weight",),
    "layers.{}.attention.key_norm.weight": ("model.layers.{}.self_attn.k_layernorm.weight",),
    "layers.{}.shared_norm.weight": ("model.layers.{}.input_layernorm.weight",),
    "layers.{}.attention.qkv.weight": tuple(f"model.layers.{{}}.self_attn.{name}_proj.weight" for name in "qkv"),
    "layers.{}.attention.out.weight": ("model.layers.{}.self_attn.dense.weight",),
    "layers.{}.mlp.up.weight": ("model.layers.{}.mlp.fc1.weight",),
    "layers.{}.mlp.down.weight": ("model.layers.{}.mlp.fc2.weight",),
    "head.norm.weight": ("model.final_layernorm.weight",),
    "head.weight": ("lm_head.weight",),
}
PLAN = common.PLAN
uncovered = common.uncovered


def build(config: PreTrainedConfig) -> Decoder:
    norm = Norm(eps=config.layer_norm_eps, kind="layer", has_bias=True)
    kind = LayerKind(rotary=common.read_rotary(config, is_partial=True))
    return common.read_decoder(
        config,
        kind,
        norm=norm,
        has_attention_bias=True,
        head_norm=norm if config.qk_layernorm else None,
        is_gated=False,
        has_mlp_bias=True,
        is_parallel=True,
        has_shared_norm=True,
        has_head_bias=True,
    )
