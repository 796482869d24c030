"""GPT-J: parallel attention and plain feed-forward with one layer norm, partial interleaved rotary positions."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

MODEL_TYPES = ("gptj",)
WEIGHT_MAP = {
    "embed.weight": ("transformer.wte.weight",),
    "layers.{}.shared_norm.weight": ("transformer.h.{}.ln_1.weight",),
    "layers.{}.attention.qkv.weight": tuple(f"transformer.h.{{}}.attn.{name}_proj.weight" for name in "qkv"),
    "layers.{}.attention.out.weight": ("transformer.h.{}.attn.out_proj.weight",),
    "layers.{}.mlp.up.weight": ("transformer.h.{}.mlp.fc_in.weight",),
    "layers.{}.mlp.down.weight": ("transformer.h.{}.mlp.fc_out.weight",),
    "head.norm.weight": ("transformer.ln_f.weight",),
    "head.weight": ("lm_head.weight",),
}
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    return common.activation_gap("activation_function", config.activation_function)


def build(config: PreTrainedConfig) -> Decoder:
    kind = LayerKind(rotary=common.plain_rotary(config.rotary_dim, 10_000.0, is_interleaved=True))
    return common.read_decoder(
        config,
        kind,
        num_kv_heads=config.num_attention_heads,
        intermediate_size=config.n_inner or 4 * config.hidden_size,
        norm=Norm(eps=config.layer_norm_epsilon, kind="layer", has_bias=True),
        activation=config.activation_function,
        is_gated=False,
        has_mlp_bias=True,
        is_parallel=True,
        has_shared_norm=True,
        has_head_bias=True,
    )
