"""Qwen2 and Qwen2.5: Llama with biases on queries, keys and values, and windows in upper layers."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder

MODEL_TYPES = ("qwen2",)
WEIGHT_MAP = common.WEIGHT_MAP
PLAN = common.PLAN
uncovered = common.uncovered


def build(config: PreTrainedConfig) -> Decoder:
    return common.read_decoder(config, has_qkv_bias=True)
