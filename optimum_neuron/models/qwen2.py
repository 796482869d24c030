"""Qwen2 and Qwen2.5: Llama with biases on queries, keys and values, and windows in upper layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import common
from .common import Decoder, DecoderConfig, LayerKind, Norm

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL_TYPES = ("qwen2",)
WEIGHT_MAP = common.WEIGHT_MAP
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    """Say which option of a configuration this family does not implement, or None."""
    return common.activation_gap("hidden_act", config.hidden_act) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    """Return the decoder of a transformers configuration, with uninitialized parameters."""
    rotary = common.read_rotary(config)
    kinds = [LayerKind(rotary=rotary, window=window) for window in common.read_windows(config)]
    return Decoder(
        DecoderConfig(
            **common.read_sizes(config),
            layers=tuple(kinds),
            norm=Norm(eps=config.rms_norm_eps),
            activation=config.hidden_act,
            has_qkv_bias=True,
        )
    )
