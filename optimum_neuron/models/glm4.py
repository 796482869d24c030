"""GLM-4: partial interleaved rotary positions, norms of inputs and results, and a joined gate."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind

MODEL_TYPES = ("glm4",)
WEIGHT_MAP = common.WEIGHT_MAP | {
    "layers.{}.attention_result_norm.weight": ("model.layers.{}.post_self_attn_layernorm.weight",),
    "layers.{}.mlp.gate_up.weight": ("model.layers.{}.mlp.gate_up_proj.weight",),
    "layers.{}.mlp_result_norm.weight": ("model.layers.{}.post_mlp_layernorm.weight",),
}
PLAN = common.PLAN | {"layers.*.mlp.gate_up": "packed_columns"}
uncovered = common.uncovered


def build(config: PreTrainedConfig) -> Decoder:
    kind = LayerKind(rotary=common.read_rotary(config, is_partial=True, is_interleaved=True))
    return common.read_decoder(config, kind, has_qkv_bias=config.attention_bias, norms="around")
