"""LFM2: short gated convolutions, and attention with norms of queries and keys in some layers."""

from __future__ import annotations

from torch import nn

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Attention, Decoder, DecoderConfig, LayerKind, Norm, ShortConvolution

MODEL_TYPES = ("lfm2",)
LAYER_TYPES = ("conv", "full_attention")
_LAYER = "model.layers.{}"
WEIGHT_MAP = {
    **common.WEIGHT_MAP,
    "layers.{}.attention_norm.weight": (f"{_LAYER}.operator_norm.weight",),
    "layers.{}.attention.out.weight": (f"{_LAYER}.self_attn.out_proj.weight",),
    "layers.{}.attention.query_norm.weight": (f"{_LAYER}.self_attn.q_layernorm.weight",),
    "layers.{}.attention.key_norm.weight": (f"{_LAYER}.self_attn.k_layernorm.weight",),
    "layers.{}.attention.in_proj.weight": (f"{_LAYER}.conv.in_proj.weight",),
    "layers.{}.attention.conv.weight": (f"{_LAYER}.conv.conv.weight",),
    "layers.{}.attention.out_proj.weight": (f"{_LAYER}.conv.out_proj.weight",),
    "layers.{}.mlp_norm.weight": (f"{_LAYER}.ffn_norm.weight",),
    "layers.{}.mlp.gate_up.weight": (f"{_LAYER}.feed_forward.w1.weight", f"{_LAYER}.feed_forward.w3.weight"),
    "layers.{}.mlp.down.weight": (f"{_LAYER}.feed_forward.w2.weight",),
    "head.norm.weight": ("model.embedding_norm.weight",),
}
PLAN = {
    **common.PLAN,
    "layers.*.attention.in_proj": "triple_columns",
    "layers.*.attention.conv": "columns",
    "layers.*.attention.out_proj": "rows",
}
uncovered = common.rotary_gap


def build(config: PreTrainedConfig) -> Decoder:
    norm, full = Norm(eps=config.norm_eps), LayerKind(rotary=common.read_rotary(config))
    is_convolution = [kind == "conv" for kind in config.layer_types]

    def attention(sizes: DecoderConfig, layer: int) -> nn.Module:
        if is_convolution[layer]:
            return ShortConvolution(sizes.hidden_size, config.conv_L_cache, bias=config.conv_bias)
        return Attention(sizes, full)

    return common.read_decoder(
        config,
        (LayerKind() if convolution else full for convolution in is_convolution),
        intermediate_size=_feed_forward_size(config),
        norm=norm,
        head_norm=norm,
        attention=attention,
    )


def _feed_forward_size(config: PreTrainedConfig) -> int:
    """Width of the feed-forward, which checkpoints round up to a multiple."""
    if not config.block_auto_adjust_ff_dim:
        return config.intermediate_size
    factor = 1.0 if config.block_ffn_dim_multiplier is None else config.block_ffn_dim_multiplier
    size = int(factor * int(2 * config.intermediate_size / 3))
    return -(-size // config.block_multiple_of) * config.block_multiple_of
