"""Command R7B and Command A: parallel attention and feed-forward, rotary positions in layers with a window only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import common
from .common import Decoder, DecoderConfig, LayerKind, Norm

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL_TYPES = ("cohere2",)
WEIGHT_MAP = common.WEIGHT_MAP | {"layers.{}.shared_norm.weight": ("model.layers.{}.input_layernorm.weight",)}
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    """Say which option of a configuration this family does not implement, or None."""
    return common.activation_gap("hidden_act", config.hidden_act) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    """Return the decoder of a transformers configuration, with uninitialized parameters."""
    rotary = common.read_rotary(config, is_interleaved=True)
    kinds = [LayerKind(rotary=rotary if window else None, window=window) for window in common.read_windows(config)]
    return Decoder(
        DecoderConfig(
            **common.read_sizes(config),
            layers=tuple(kinds),
            norm=Norm(eps=config.layer_norm_eps, kind="layer"),
            activation=config.hidden_act,
            has_qkv_bias=config.attention_bias,
            has_output_bias=config.attention_bias,
            is_parallel=True,
            has_shared_norm=True,
            logits_scale=config.logit_scale,
        )
    )
