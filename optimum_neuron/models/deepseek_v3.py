"""DeepSeek-V3: latent attention, and after some dense layers experts in groups (DeepSeek-V3, section 2.1)."""

from __future__ import annotations

import math

from torch import nn

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import (
    Decoder,
    DecoderConfig,
    GatedMLP,
    LatentAttention,
    LatentConfig,
    LayerKind,
    Mixture,
    MixtureConfig,
    Norm,
)

MODEL_TYPES = ("deepseek_v3",)
_ATTENTION = {
    "q": "q_proj",
    "q_down": "q_a_proj",
    "q_norm": "q_a_layernorm",
    "q_up": "q_b_proj",
    "kv_down": "kv_a_proj_with_mqa",
    "kv_norm": "kv_a_layernorm",
    "kv_up": "kv_b_proj",
    "out": "o_proj",
}
WEIGHT_MAP = {
    **common.WEIGHT_MAP,
    **common.MIXTURE_WEIGHT_MAP,
    **common.shared_weight_map("shared_experts"),
    "layers.{}.mlp.router.correction": ("model.layers.{}.mlp.gate.e_score_correction_bias",),
    **{
        f"layers.{{}}.attention.{name}.weight": (f"model.layers.{{}}.self_attn.{source}.weight",)
        for name, source in _ATTENTION.items()
    },
}
PLAN = {
    **common.PLAN,
    **common.MIXTURE_PLAN,
    "layers.*.attention.q": "heads",
    "layers.*.attention.q_up": "heads",
    "layers.*.attention.kv_up": "heads",
}
uncovered = common.mixture_uncovered


def build(config: PreTrainedConfig) -> Decoder:
    mixture = MixtureConfig(
        num_experts=config.n_routed_experts,
        experts_per_token=config.num_experts_per_tok,
        intermediate_size=config.moe_intermediate_size,
        score="sigmoid",
        is_normalized=config.norm_topk_prob,
        scale=config.routed_scaling_factor,
        num_groups=config.n_group,
        groups_per_token=config.topk_group,
        correction_bias=True,
        shared_size=config.moe_intermediate_size * config.n_shared_experts,
    )
    latent = LatentConfig(
        query_rank=config.q_lora_rank,
        rank=config.kv_lora_rank,
        plain_dim=config.qk_nope_head_dim,
        rotary_dim=config.qk_rope_head_dim,
        value_dim=config.v_head_dim,
        scale=_scale(config),
        norm=Norm(eps=1e-6),
        bias=config.attention_bias,
    )

    def feed_forward(sizes: DecoderConfig, layer: int) -> nn.Module:
        return GatedMLP(sizes) if layer < config.first_k_dense_replace else Mixture(sizes, mixture)

    kind = LayerKind(rotary=common.read_rotary(config, is_interleaved=config.rope_interleave))
    return common.read_decoder(
        config,
        kind,
        num_kv_heads=config.num_attention_heads,
        attention=lambda sizes, layer: LatentAttention(sizes.hidden_size, sizes.num_heads, latent),
        feed_forward=feed_forward,
    )


def _scale(config: PreTrainedConfig) -> float:
    """Factor on attention scores, which YaRN changes with `mscale_all_dim` (Peng et al. 2023, section 3.4)."""
    scale, rope = (config.qk_nope_head_dim + config.qk_rope_head_dim) ** -0.5, config.rope_parameters
    all_dim = rope.get("mscale_all_dim", 0)
    if rope.get("rope_type", "default") == "default" or not all_dim or rope["factor"] <= 1:
        return scale
    return scale * (0.1 * all_dim * math.log(rope["factor"]) + 1.0) ** 2
