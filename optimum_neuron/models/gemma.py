"""Gemma: wide heads, a gate with gelu, norms that add 1 to their weight, and scaled embeddings."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

MODEL_TYPES = ("gemma",)
WEIGHT_MAP = common.WEIGHT_MAP
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    if config.use_bidirectional_attention:
        return "use_bidirectional_attention=True"
    return common.uncovered(config)


def build(config: PreTrainedConfig) -> Decoder:
    kind = LayerKind(rotary=common.read_rotary(config))
    return common.read_decoder(
        config,
        kind,
        norm=Norm(eps=config.rms_norm_eps, adds_one=True),
        has_attention_bias=config.attention_bias,
        embed_scale=config.hidden_size**0.5,
    )
