"""StarCoder2: layer norms, grouped-query attention with windows, and a plain feed-forward."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

MODEL_TYPES = ("starcoder2",)
WEIGHT_MAP = common.WEIGHT_MAP | {
    "layers.{}.mlp.up.weight": ("model.layers.{}.mlp.c_fc.weight",),
    "layers.{}.mlp.down.weight": ("model.layers.{}.mlp.c_proj.weight",),
}
PLAN = common.PLAN
uncovered = common.uncovered


def build(config: PreTrainedConfig) -> Decoder:
    kind = LayerKind(rotary=common.read_rotary(config), window=config.sliding_window)
    return common.read_decoder(
        config,
        kind,
        norm=Norm(eps=config.norm_epsilon, kind="layer", has_bias=True),
        has_attention_bias=config.use_bias,
        is_gated=False,
        has_mlp_bias=config.use_bias,
    )
