"""Qwen2 MoE and Qwen3 MoE: fine-grained experts in some or all layers, in Qwen2 with one that every token takes."""

from __future__ import annotations

from torch import nn

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, DecoderConfig, GatedMLP, LayerKind, Mixture, MixtureConfig, Norm

MODEL_TYPES = ("qwen2_moe", "qwen3_moe")
WEIGHT_MAP = {
    **common.WEIGHT_MAP,
    **common.MIXTURE_WEIGHT_MAP,
    **common.shared_weight_map("shared_expert"),
    **common.HEAD_NORMS,
    "layers.{}.mlp.shared_gate.weight": ("model.layers.{}.mlp.shared_expert_gate.weight",),
}
PLAN = common.PLAN | common.MIXTURE_PLAN
uncovered = common.mixture_uncovered


def build(config: PreTrainedConfig) -> Decoder:
    is_third, norm, rotary = config.model_type == "qwen3_moe", Norm(eps=config.rms_norm_eps), common.read_rotary(config)
    if is_third:
        windows = [config.sliding_window] * config.num_hidden_layers
    else:
        windows = [config.sliding_window if kind == "sliding_attention" else None for kind in config.layer_types]
    mixture = MixtureConfig(
        num_experts=config.num_experts,
        experts_per_token=config.num_experts_per_tok,
        intermediate_size=config.moe_intermediate_size,
        is_normalized=config.norm_topk_prob,
        shared_size=0 if is_third else config.shared_expert_intermediate_size,
        shared_gate=not is_third,
    )

    def feed_forward(sizes: DecoderConfig, layer: int) -> nn.Module:
        is_sparse = layer not in config.mlp_only_layers and (layer + 1) % config.decoder_sparse_step == 0
        return Mixture(sizes, mixture) if is_sparse and config.num_experts > 0 else GatedMLP(sizes)

    return common.read_decoder(
        config,
        (LayerKind(rotary=rotary, window=window) for window in windows),
        norm=norm,
        has_qkv_bias=config.attention_bias if is_third else config.qkv_bias,
        has_output_bias=is_third and config.attention_bias,
        head_norm=norm if is_third else None,
        feed_forward=feed_forward,
    )
