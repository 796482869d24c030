"""EXAONE 4: norms of results only and on queries and keys; layers that see everything have no positions."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

MODEL_TYPES = ("exaone4",)
WEIGHT_MAP = {
    **common.WEIGHT_MAP,
    **common.HEAD_NORMS,
    "layers.{}.attention_result_norm.weight": ("model.layers.{}.post_attention_layernorm.weight",),
    "layers.{}.mlp_result_norm.weight": ("model.layers.{}.post_feedforward_layernorm.weight",),
}
PLAN = common.PLAN
uncovered = common.uncovered


def build(config: PreTrainedConfig) -> Decoder:
    rotary, has_windows = common.read_rotary(config), config.sliding_window is not None
    kinds = [
        LayerKind(rotary=rotary if window or not has_windows else None, window=window)
        for window in common.read_windows(config)
    ]
    return common.read_decoder(config, kinds, head_norm=Norm(eps=config.rms_norm_eps), norms="after")
