"""Mixtral: Llama's blocks with experts in place of every feed-forward (Jiang et al. 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import common
from .common import Decoder, DecoderConfig, LayerKind, Mixture, MixtureConfig, Norm

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL_TYPES = ("mixtral",)
WEIGHT_MAP = common.WEIGHT_MAP | common.MIXTURE_WEIGHT_MAP
PLAN = common.PLAN | common.MIXTURE_PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    """Say which option of a configuration this family does not implement, or None."""
    return common.expert_gap("hidden_act", config.hidden_act) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    """Return the decoder of a transformers configuration, with uninitialized parameters."""
    kind = LayerKind(rotary=common.read_rotary(config), window=config.sliding_window)
    mixture = MixtureConfig(
        num_experts=config.num_local_experts,
        experts_per_token=config.num_experts_per_tok,
        intermediate_size=config.intermediate_size,
        is_normalized=True,
    )
    return Decoder(
        DecoderConfig(
            **common.read_sizes(config),
            layers=(kind,) * config.num_hidden_layers,
            norm=Norm(eps=config.rms_norm_eps),
        ),
        feed_forward=lambda sizes, layer: Mixture(sizes, mixture),
    )
