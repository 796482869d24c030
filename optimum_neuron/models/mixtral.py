"""Mixtral: Llama's blocks with experts in place of every feed-forward (Jiang et al. 2024)."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Mixture, MixtureConfig

MODEL_TYPES = ("mixtral",)
WEIGHT_MAP = common.WEIGHT_MAP | common.MIXTURE_WEIGHT_MAP
PLAN = common.PLAN | common.MIXTURE_PLAN
uncovered = common.mixture_uncovered


def build(config: PreTrainedConfig) -> Decoder:
    kind = LayerKind(rotary=common.read_rotary(config), window=config.sliding_window)
    mixture = MixtureConfig(
        num_experts=config.num_local_experts,
        experts_per_token=config.num_experts_per_tok,
        intermediate_size=config.intermediate_size,
        is_normalized=True,
    )
    return common.read_decoder(config, kind, feed_forward=lambda sizes, layer: Mixture(sizes, mixture))
