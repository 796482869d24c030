"""StableLM: Llama with layer norms and partial rotary positions, also with parallel feed-forward."""

from __future__ import annotations

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Decoder, LayerKind, Norm

MODEL_TYPES = ("stablelm",)
WEIGHT_MAP = common.WEIGHT_MAP | {"layers.{}.shared_norm.weight": ("model.layers.{}.input_layernorm.weight",)}
PLAN = common.PLAN


def uncovered(config: PreTrainedConfig) -> str | None:
    if config.qk_layernorm:
        return "qk_layernorm=True"
    return common.uncovered(config)


def build(config: PreTrainedConfig) -> Decoder:
    kind = LayerKind(rotary=common.read_rotary(config, is_partial=True))
    return common.read_decoder(
        config,
        kind,
        norm=Norm(eps=config.layer_norm_eps, kind="layer", has_bias=True),
        has_qkv_bias=config.use_qkv_bias,
        is_parallel=config.use_parallel_residual,
        has_shared_norm=config.use_parallel_residual,
    )
