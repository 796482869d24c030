"""Qwen3: Llama with a norm on each query and key."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, Norm

MODEL_TYPES = ("qwen3",)
WEIGHT_MAP = common.WEIGHT_MAP | common.HEAD_NORMS
PLAN = common.PLAN
uncovered = common.uncovered


def build(config: PreTrainedConfig) -> Decoder:
    return common.read_decoder(
        config, has_attention_bias=config.attention_bias, head_norm=Norm(eps=config.rms_norm_eps)
    )
