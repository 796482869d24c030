"""Phi-1, Phi-1.5 and Phi-2: parallel attention and plain feed-forward with one layer norm, partial rotary positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import common
from .common import Decoder, DecoderConfig, LayerKind, Norm

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL_TYPES = ("phi",)
WEIGHT_MAP = {
    "embed.weight": ("model.embed_tokens.weight",),
    "layers.{}.attention.query_norm.weight": ("model.layers.{}.self_attn.q_layernorm.weight",),
    "layers.{}.attention.key_norm.weight": ("model.layers.{}.self_attn.k_layernorm.weight",),
    "layers.{}.shared_norm.weight": ("model.layers.{}.input_layernorm.weight",),
    "layers.{}.attention.qkv.weight": (
        "model.layers.{}.self_attn.q_proj.weight",
        "model.layers.{}.self_attn.k_proj.weight",
        "model.layers.{}.self_attn.v_proj.weight",
    ),
    "layers.{}.attention.out.weight": ("model.layers.{}.self_attn.dense.weight",),
    "layers.{}.mlp.up.weight": ("model.layers.{}.mlp.fc1.weight",),
    "layers.{}.mlp.down.weight": ("model.layers.{}.mlp.fc2.weight",),
    "head.norm.weight": ("model.final_layernorm.weight",),
    "head.weight": ("lm_head.weight",),
}
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    """Say which option of a configuration this family does not implement, or None."""
    return common.activation_gap("hidden_act", config.hidden_act) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    """Return the decoder of a transformers configuration, with uninitialized parameters."""
    norm = Norm(eps=config.layer_norm_eps, kind="layer", has_bias=True)
    kind = LayerKind(rotary=common.read_rotary(config, is_partial=True))
    return Decoder(
        DecoderConfig(
            **common.read_sizes(config),
            layers=(kind,) * config.num_hidden_layers,
            norm=norm,
            activation=config.hidden_act,
            has_qkv_bias=True,
            has_output_bias=True,
            head_norm=norm if config.qk_layernorm else None,
            is_gated=False,
            has_mlp_bias=True,
            is_parallel=True,
            has_shared_norm=True,
            has_head_bias=True,
        )
    )
