"""StarCoder2: layer norms, grouped-query attention with windows, and a plain feed-forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import common
from .common import Decoder, DecoderConfig, LayerKind, Norm

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL_TYPES = ("starcoder2",)
WEIGHT_MAP = common.WEIGHT_MAP | {
    "layers.{}.mlp.up.weight": ("model.layers.{}.mlp.c_fc.weight",),
    "layers.{}.mlp.down.weight": ("model.layers.{}.mlp.c_proj.weight",),
}
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    """Say which option of a configuration this family does not implement, or None."""
    return common.activation_gap("hidden_act", config.hidden_act) or common.rotary_gap(config)


def build(config: PreTrainedConfig) -> Decoder:
    """Return the decoder of a transformers configuration, with uninitialized parameters."""
    kind = LayerKind(rotary=common.read_rotary(config), window=config.sliding_window)
    return Decoder(
        DecoderConfig(
            **common.read_sizes(config),
            layers=(kind,) * config.num_hidden_layers,
            norm=Norm(eps=config.norm_epsilon, kind="layer", has_bias=True),
            activation=config.hidden_act,
            has_qkv_bias=config.use_bias,
            has_output_bias=config.use_bias,
            is_gated=False,
            has_mlp_bias=config.use_bias,
        )
    )
