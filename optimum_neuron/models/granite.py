"""Granite 3: Llama with factors on embeddings, attention scores, residuals and logits."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind

MODEL_TYPES = ("granite",)
WEIGHT_MAP = common.WEIGHT_MAP
PLAN = common.PLAN
uncovered = common.uncovered


def build(config: PreTrainedConfig) -> Decoder:
    kind = LayerKind(rotary=common.read_rotary(config), scale=config.attention_multiplier)
    return common.read_decoder(
        config,
        kind,
        has_attention_bias=config.attention_bias,
        has_mlp_bias=config.mlp_bias,
        input_scale=config.embedding_multiplier,
        residual_scale=config.residual_multiplier,
        logits_scale=1.0 / config.logits_scaling,
    )
