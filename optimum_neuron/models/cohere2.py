"""Command R7B and Command A: parallel attention and feed-forward, rotary positions in layers with a window only."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

MODEL_TYPES = ("cohere2",)
WEIGHT_MAP = common.WEIGHT_MAP | {"layers.{}.shared_norm.weight": ("model.layers.{}.input_layernorm.weight",)}
PLAN = common.PLAN
uncovered = common.uncovered


def build(config: PreTrainedConfig) -> Decoder:
    rotary = common.read_rotary(config, is_interleaved=True)
    kinds = [LayerKind(rotary=rotary if window else None, window=window) for window in common.read_windows(config)]
    return common.read_decoder(
        config,
        kinds,
        norm=Norm(eps=config.layer_norm_eps, kind="layer"),
        has_attention_bias=config.attention_bias,
        is_parallel=True,
        has_shared_norm=True,
        logits_scale=config.logit_scale,
    )
