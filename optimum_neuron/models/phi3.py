"""Phi-3, Phi-3.5 and Phi-4: Llama whose checkpoints have joined projections, with partial rotary positions."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind

MODEL_TYPES = ("phi3",)
WEIGHT_MAP = common.WEIGHT_MAP | {
    "layers.{}.attention.qkv.weight": ("model.layers.{}.self_attn.qkv_proj.weight",),
    "layers.{}.mlp.gate_up.weight": ("model.layers.{}.mlp.gate_up_proj.weight",),
}
PLAN = common.PLAN | {"layers.*.mlp.gate_up": "packed_columns"}
uncovered = common.uncovered


def build(config: PreTrainedConfig) -> Decoder:
    kind = LayerKind(rotary=common.read_rotary(config, is_partial=True), window=config.sliding_window)
    return common.read_decoder(config, kind)
