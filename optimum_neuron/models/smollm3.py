"""SmolLM3: Llama without positions in every fourth layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import common
from .common import Decoder, DecoderConfig, LayerKind, Norm

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL_TYPES = ("smollm3",)
WEIGHT_MAP = common.WEIGHT_MAP
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    """Say which option of a configuration this family does not implement, or None."""
    return common.activation_gap("hidden_act", config.hidden_act) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    """Return the decoder of a transformers configuration, with uninitialized parameters."""
    rotary = common.read_rotary(config)
    kinds = [
        LayerKind(rotary=rotary if has_rotary else None, window=window)
        for has_rotary, window in zip(config.no_rope_layers, common.read_windows(config), strict=True)
    ]
    return Decoder(
        DecoderConfig(
            **common.read_sizes(config),
            layers=tuple(kinds),
            norm=Norm(eps=config.rms_norm_eps),
            activation=config.hidden_act,
            has_qkv_bias=config.attention_bias,
            has_output_bias=config.attention_bias,
            has_mlp_bias=config.mlp_bias,
        )
    )
