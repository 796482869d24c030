"""GLM-4: partial interleaved rotary positions, norms of inputs and results, and a joined gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import common
from .common import Decoder, DecoderConfig, LayerKind, Norm

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL_TYPES = ("glm4",)
WEIGHT_MAP = common.WEIGHT_MAP | {
    "layers.{}.attention_result_norm.weight": ("model.layers.{}.post_self_attn_layernorm.weight",),
    "layers.{}.mlp.gate_up.weight": ("model.layers.{}.mlp.gate_up_proj.weight",),
    "layers.{}.mlp_result_norm.weight": ("model.layers.{}.post_mlp_layernorm.weight",),
}
PLAN = common.PLAN | {"layers.*.mlp.gate_up": "packed_columns"}


def uncovered(config: PreTrainedConfig) -> str | None:
    """Say which option of a configuration this family does not implement, or None."""
    return common.activation_gap("hidden_act", config.hidden_act) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    """Return the decoder of a transformers configuration, with uninitialized parameters."""
    kind = LayerKind(rotary=common.read_rotary(config, is_partial=True, is_interleaved=True))
    return Decoder(
        DecoderConfig(
            **common.read_sizes(config),
            layers=(kind,) * config.num_hidden_layers,
            norm=Norm(eps=config.rms_norm_eps),
            activation=config.hidden_act,
            has_qkv_bias=config.attention_bias,
            norms="around",
        )
    )
