"""MPT: biases by distance in place of positions, bounded projections, and no biases of layers."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

# `alibi_bias_max` has no effect in transformers (5.23, `MptModel.forward`), which takes 8.
MODEL_TYPES = ("mpt",)
WEIGHT_MAP = {
    "embed.weight": ("transformer.wte.weight",),
    "layers.{}.attention_norm.weight": ("transformer.blocks.{}.norm_1.weight",),
    "layers.{}.attention.qkv.weight": ("transformer.blocks.{}.attn.Wqkv.weight",),
    "layers.{}.attention.out.weight": ("transformer.blocks.{}.attn.out_proj.weight",),
    "layers.{}.mlp_norm.weight": ("transformer.blocks.{}.norm_2.weight",),
    "layers.{}.mlp.up.weight": ("transformer.blocks.{}.ffn.up_proj.weight",),
    "layers.{}.mlp.down.weight": ("transformer.blocks.{}.ffn.down_proj.weight",),
    "head.norm.weight": ("transformer.norm_f.weight",),
    "head.weight": ("lm_head.weight",),
}
PLAN = common.PLAN | {"alibi": "slopes"}


def uncovered(config: PreTrainedConfig) -> str | None:
    return None


def build(config: PreTrainedConfig) -> Decoder:
    options, num_heads = config.attn_config, config.num_attention_heads
    kind = LayerKind(scale=options.softmax_scale)
    return common.read_decoder(
        config,
        kind,
        num_kv_heads=num_heads,
        intermediate_size=4 * config.hidden_size,
        norm=Norm(eps=config.layer_norm_epsilon, kind="layer"),
        alibi_slopes=common.slopes_by_order(num_heads),
        qkv_limit=options.clip_qkv or None,
        activation="gelu",
        is_gated=False,
    )
