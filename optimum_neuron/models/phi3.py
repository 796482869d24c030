"""Phi-3, Phi-3.5 and Phi-4: Llama whose checkpoints have joined projections, with partial rotary positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import common
from .common import Decoder, DecoderConfig, LayerKind, Norm

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL_TYPES = ("phi3",)
WEIGHT_MAP = common.WEIGHT_MAP | {
    "layers.{}.attention.qkv.weight": ("model.layers.{}.self_attn.qkv_proj.weight",),
    "layers.{}.mlp.gate_up.weight": ("model.layers.{}.mlp.gate_up_proj.weight",),
}
PLAN = common.PLAN | {"layers.*.mlp.gate_up": "packed_columns"}


def uncovered(config: PreTrainedConfig) -> str | None:
    """Say which option of a configuration this family does not implement, or None."""
    return common.activation_gap("hidden_act", config.hidden_act) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    """Return the decoder of a transformers configuration, with uninitialized parameters."""
    kind = LayerKind(rotary=common.read_rotary(config, is_partial=True), window=config.sliding_window)
    return Decoder(
        DecoderConfig(
            **common.read_sizes(config),
            layers=(kind,) * config.num_hidden_layers,
            norm=Norm(eps=config.rms_norm_eps),
            activation=config.hidden_act,
        )
    )
