"""SmolLM3: Llama without positions in every fourth layer."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind

MODEL_TYPES = ("smollm3",)
WEIGHT_MAP = common.WEIGHT_MAP
PLAN = common.PLAN
uncovered = common.uncovered


def build(config: PreTrainedConfig) -> Decoder:
    rotary = common.read_rotary(config)
    kinds = [
        LayerKind(rotary=rotary if has_rotary else None, window=window)
        for has_rotary, window in zip(config.no_rope_layers, common.read_windows(config), strict=True)
    ]
    return common.read_decoder(config, kinds, has_attention_bias=config.attention_bias, has_mlp_bias=config.mlp_bias)
