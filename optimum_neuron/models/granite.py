"""Granite 3: Llama with factors on embeddings, attention scores, residuals and logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import common
from .common import Decoder, DecoderConfig, LayerKind, Norm

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL_TYPES = ("granite",)
WEIGHT_MAP = common.WEIGHT_MAP
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    """Say which option of a configuration this family does not implement, or None."""
    return common.activation_gap("hidden_act", config.hidden_act) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    """Return the decoder of a transformers configuration, with uninitialized parameters."""
    kind = LayerKind(rotary=common.read_rotary(config), scale=config.attention_multiplier)
    return Decoder(
        DecoderConfig(
            **common.read_sizes(config),
            layers=(kind,) * config.num_hidden_layers,
            norm=Norm(eps=config.rms_norm_eps),
            activation=config.hidden_act,
            has_qkv_bias=config.attention_bias,
            has_output_bias=config.attention_bias,
            has_mlp_bias=config.mlp_bias,
            input_scale=config.embedding_multiplier,
            residual_scale=config.residual_multiplier,
            logits_scale=1.0 / config.logits_scaling,
        )
    )
