"""OLMo 2: Llama with norms of results only, and a norm over all queries and all keys."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

MODEL_TYPES = ("olmo2",)
WEIGHT_MAP = {
    **common.WEIGHT_MAP,
    **common.HEAD_NORMS,
    "layers.{}.attention_result_norm.weight": ("model.layers.{}.post_attention_layernorm.weight",),
    "layers.{}.mlp_result_norm.weight": ("model.layers.{}.post_feedforward_layernorm.weight",),
}
PLAN = common.PLAN | {
    "layers.*.attention.query_norm": "norm_of_heads",
    "layers.*.attention.key_norm": "norm_of_heads",
}
uncovered = common.uncovered


def build(config: PreTrainedConfig) -> Decoder:
    kind = LayerKind(rotary=common.read_rotary(config))
    return common.read_decoder(
        config,
        kind,
        has_attention_bias=config.attention_bias,
        head_norm=Norm(eps=config.rms_norm_eps),
        head_norm_width="all heads",
        norms="after",
    )
