"""Llama 2 and 3, SmolLM2, Mistral: rotary positions, RMS norms, grouped-query attention, a gated feed-forward."""

from __future__ import annotations

from ..base.model_facts import facts_of
from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind

MODEL_TYPES = ("llama", "mistral")
WEIGHT_MAP = common.WEIGHT_MAP
PLAN = common.PLAN
uncovered = common.uncovered


def build(config: PreTrainedConfig) -> Decoder:
    facts = facts_of(config)
    kind = LayerKind(rotary=common.read_rotary(config), window=facts.sliding_window)
    return common.read_decoder(
        config, kind, has_attention_bias=bool(facts.attention_bias), has_mlp_bias=bool(facts.mlp_bias)
    )
