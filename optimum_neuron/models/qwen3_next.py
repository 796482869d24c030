"""Qwen3-Next: linear attention by the gated delta rule, gated attention in every fourth layer, fine-grained experts."""

from __future__ import annotations

from torch import nn

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import (
    Attention,
    Decoder,
    DecoderConfig,
    DeltaConfig,
    GatedDeltaNet,
    GatedMLP,
    LayerKind,
    Mixture,
    MixtureConfig,
    Norm,
)

MODEL_TYPES = ("qwen3_next",)
LAYER_TYPES = ("linear_attention", "full_attention")
_LINEAR = "model.layers.{}.linear_attn"
WEIGHT_MAP = {
    **common.WEIGHT_MAP,
    **common.MIXTURE_WEIGHT_MAP,
    **common.shared_weight_map("shared_expert"),
    **common.HEAD_NORMS,
    "layers.{}.attention.in_proj.weight": (f"{_LINEAR}.in_proj_qkvz.weight", f"{_LINEAR}.in_proj_ba.weight"),
    "layers.{}.attention.conv.weight": (f"{_LINEAR}.conv1d.weight",),
    "layers.{}.attention.log_speed": (f"{_LINEAR}.A_log",),
    "layers.{}.attention.step_bias": (f"{_LINEAR}.dt_bias",),
    "layers.{}.attention.norm.weight": (f"{_LINEAR}.norm.weight",),
    "layers.{}.attention.out_proj.weight": (f"{_LINEAR}.out_proj.weight",),
    "layers.{}.mlp.shared_gate.weight": ("model.layers.{}.mlp.shared_expert_gate.weight",),
}
PLAN = {
    **common.PLAN,
    **common.MIXTURE_PLAN,
    "layers.*.attention": "head_values",
    "layers.*.attention.in_proj": "delta_heads",
    "layers.*.attention.conv": "delta_channels",
    "layers.*.attention.out_proj": "from_heads",
}
uncovered = common.mixture_uncovered


def build(config: PreTrainedConfig) -> Decoder:
    norm = Norm(eps=config.rms_norm_eps, adds_one=True)
    full = LayerKind(rotary=common.read_rotary(config, is_partial=True))
    mixture = MixtureConfig(
        num_experts=config.num_experts,
        experts_per_token=config.num_experts_per_tok,
        intermediate_size=config.moe_intermediate_size,
        is_normalized=config.norm_topk_prob,
        shared_size=config.shared_expert_intermediate_size,
        shared_gate=True,
    )
    delta = DeltaConfig(
        num_key_heads=config.linear_num_key_heads,
        num_value_heads=config.linear_num_value_heads,
        key_dim=config.linear_key_head_dim,
        value_dim=config.linear_value_head_dim,
        num_taps=config.linear_conv_kernel_dim,
        norm=Norm(eps=config.rms_norm_eps),
    )
    is_linear = [kind == "linear_attention" for kind in config.layer_types]

    def attention(sizes: DecoderConfig, layer: int) -> nn.Module:
        return GatedDeltaNet(sizes.hidden_size, delta) if is_linear[layer] else Attention(sizes, full)

    def feed_forward(sizes: DecoderConfig, layer: int) -> nn.Module:
        is_sparse = layer not in config.mlp_only_layers and (layer + 1) % config.decoder_sparse_step == 0
        return Mixture(sizes, mixture) if is_sparse and config.num_experts > 0 else GatedMLP(sizes)

    return common.read_decoder(
        config,
        (LayerKind() if linear else full for linear in is_linear),
        norm=norm,
        has_attention_bias=config.attention_bias,
        has_attention_gate=True,
        head_norm=norm,
        attention=attention,
        feed_forward=feed_forward,
    )
