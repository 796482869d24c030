"""GPT-2: learned positions, layer norms, a plain feed-forward, and weights that checkpoints store transposed."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

MODEL_TYPES = ("gpt2",)
WEIGHT_MAP = {
    "embed.weight": ("transformer.wte.weight",),
    "position_embed.weight": ("transformer.wpe.weight",),
    "layers.{}.attention_norm.weight": ("transformer.h.{}.ln_1.weight",),
    "layers.{}.attention.qkv.weight": ("transformer.h.{}.attn.c_attn.weight",),
    "layers.{}.attention.out.weight": ("transformer.h.{}.attn.c_proj.weight",),
    "layers.{}.mlp_norm.weight": ("transformer.h.{}.ln_2.weight",),
    "layers.{}.mlp.up.weight": ("transformer.h.{}.mlp.c_fc.weight",),
    "layers.{}.mlp.down.weight": ("transformer.h.{}.mlp.c_proj.weight",),
    "head.norm.weight": ("transformer.ln_f.weight",),
    "head.weight": ("lm_head.weight",),
}
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    if config.add_cross_attention:
        return "add_cross_attention=True"
    return common.activation_gap("activation_function", config.activation_function)


def build(config: PreTrainedConfig) -> Decoder:
    head_dim = config.hidden_size // config.num_attention_heads
    scale = head_dim**-0.5 if config.scale_attn_weights else 1.0
    by_layer = config.scale_attn_by_inverse_layer_idx
    kinds = [LayerKind(scale=scale / (layer + 1 if by_layer else 1)) for layer in range(config.num_hidden_layers)]
    return common.read_decoder(
        config,
        kinds,
        num_kv_heads=config.num_attention_heads,
        intermediate_size=config.n_inner or 4 * config.hidden_size,
        norm=Norm(eps=config.layer_norm_epsilon, kind="layer", has_bias=True),
        num_positions=config.max_position_embeddings,
        has_attention_bias=True,
        activation=config.activation_function,
        is_gated=False,
        has_mlp_bias=True,
        has_transposed_weights=True,
    )
