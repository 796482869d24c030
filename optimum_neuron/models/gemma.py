"""Gemma: wide heads, a gate with gelu, norms that add 1 to their weight, and scaled embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import common
from .common import Decoder, DecoderConfig, LayerKind, Norm

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL_TYPES = ("gemma",)
WEIGHT_MAP = common.WEIGHT_MAP
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    """Say which option of a configuration this family does not implement, or None."""
    if config.use_bidirectional_attention:
        return "use_bidirectional_attention=True"
    return common.activation_gap("hidden_act", config.hidden_act) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    """Return the decoder of a transformers configuration, with uninitialized parameters."""
    kind = LayerKind(rotary=common.read_rotary(config))
    return Decoder(
        DecoderConfig(
            **common.read_sizes(config),
            layers=(kind,) * config.num_hidden_layers,
            norm=Norm(eps=config.rms_norm_eps, adds_one=True),
            activation=config.hidden_act,
            has_qkv_bias=config.attention_bias,
            has_output_bias=config.attention_bias,
            embed_scale=config.hidden_size**0.5,
        )
    )
