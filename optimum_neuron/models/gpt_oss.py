"""gpt-oss: experts with biases and a clamped activation, attention with sinks, windows in every other layer."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Mixture, MixtureConfig, SinkAttention

MODEL_TYPES = ("gpt_oss",)
WEIGHT_MAP = {
    **common.WEIGHT_MAP,
    **common.MIXTURE_WEIGHT_MAP,
    "layers.{}.mlp.router.weight": ("model.layers.{}.mlp.router.weight",),
    "layers.{}.mlp.experts.gate_up_proj_bias": ("model.layers.{}.mlp.experts.gate_up_proj_bias",),
    "layers.{}.mlp.experts.down_proj_bias": ("model.layers.{}.mlp.experts.down_proj_bias",),
    "layers.{}.attention.sinks": ("model.layers.{}.self_attn.sinks",),
}
PLAN = common.PLAN | common.MIXTURE_PLAN | {"layers.*.attention": "head_values"}
uncovered = common.rotary_gap


def build(config: PreTrainedConfig) -> Decoder:
    rotary = common.read_rotary(config)
    windows = [config.sliding_window if kind == "sliding_attention" else None for kind in config.layer_types]
    mixture = MixtureConfig(
        num_experts=config.num_local_experts,
        experts_per_token=config.num_experts_per_tok,
        intermediate_size=config.intermediate_size,
        is_normalized=True,
        router_bias=True,
        bias=True,
        is_transposed=True,
        is_interleaved=True,
        activation_limit=config.swiglu_limit,
        activation_alpha=config.swiglu_alpha,
    )
    return common.read_decoder(
        config,
        (LayerKind(rotary=rotary, window=window) for window in windows),
        has_attention_bias=config.attention_bias,
        attention=lambda sizes, layer: SinkAttention(sizes, sizes.layers[layer]),
        feed_forward=lambda sizes, layer: Mixture(sizes, mixture),
    )
