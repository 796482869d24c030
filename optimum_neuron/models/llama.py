"""Llama 2 and 3, SmolLM2, Mistral: rotary positions, RMS norms, grouped-query attention, a gated feed-forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import common
from .common import Decoder, DecoderConfig, LayerKind, Norm

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL_TYPES = ("llama", "mistral")
WEIGHT_MAP = common.WEIGHT_MAP
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    """Say which option of a configuration this family does not implement, or None."""
    return common.activation_gap("hidden_act", config.hidden_act) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    """Return the decoder of a transformers configuration, with uninitialized parameters."""
    attention_bias = getattr(config, "attention_bias", False)
    kind = LayerKind(rotary=common.read_rotary(config), window=getattr(config, "sliding_window", None))
    return Decoder(
        DecoderConfig(
            **common.read_sizes(config),
            layers=(kind,) * config.num_hidden_layers,
            norm=Norm(eps=config.rms_norm_eps),
            activation=config.hidden_act,
            has_qkv_bias=attention_bias,
            has_output_bias=attention_bias,
            has_mlp_bias=getattr(config, "mlp_bias", False),
        )
    )
