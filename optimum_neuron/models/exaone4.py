"""EXAONE 4: norms of results only and on queries and keys; layers that see everything have no positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import common
from .common import Decoder, DecoderConfig, LayerKind, Norm

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL_TYPES = ("exaone4",)
WEIGHT_MAP = common.WEIGHT_MAP | {
    "layers.{}.attention.query_norm.weight": ("model.layers.{}.self_attn.q_norm.weight",),
    "layers.{}.attention.key_norm.weight": ("model.layers.{}.self_attn.k_norm.weight",),
    "layers.{}.attention_result_norm.weight": ("model.layers.{}.post_attention_layernorm.weight",),
    "layers.{}.mlp_result_norm.weight": ("model.layers.{}.post_feedforward_layernorm.weight",),
}
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    """Say which option of a configuration this family does not implement, or None."""
    return common.activation_gap("hidden_act", config.hidden_act) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    """Return the decoder of a transformers configuration, with uninitialized parameters."""
    rotary, has_windows = common.read_rotary(config), config.sliding_window is not None
    kinds = [
        LayerKind(rotary=rotary if window or not has_windows else None, window=window)
        for window in common.read_windows(config)
    ]
    return Decoder(
        DecoderConfig(
            **common.read_sizes(config),
            layers=tuple(kinds),
            norm=Norm(eps=config.rms_norm_eps),
            activation=config.hidden_act,
            head_norm=Norm(eps=config.rms_norm_eps),
            norms="after",
        )
    )
