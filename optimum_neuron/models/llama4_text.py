"""Llama 4's text decoder: chunks with rotary positions, some layers that see all without positions, and experts."""

from __future__ import annotations

import torch
from torch import nn

from ..base.transformers_types import PreTrainedConfig
from . import common
from .common import Attention, AttentionView, Decoder, DecoderConfig, GatedMLP, LayerKind, Mixture, MixtureConfig

MODEL_TYPES = ("llama4_text",)
LAYER_TYPES = ("chunked_attention", "full_attention")
WEIGHT_MAP = {
    name: tuple(source.replace(".mlp.", ".feed_forward.") for source in sources)
    for name, sources in {
        **common.WEIGHT_MAP,
        **common.MIXTURE_WEIGHT_MAP,
        **common.shared_weight_map("shared_expert"),
        "layers.{}.mlp.router.weight": ("model.layers.{}.mlp.router.weight",),
    }.items()
}
PLAN = common.PLAN | common.MIXTURE_PLAN
uncovered = common.mixture_uncovered


class Llama4Attention(Attention):
    """Rotated queries and keys are normalized; those without positions grow with the distance (Nakanishi 2025)."""

    def __init__(self, sizes: DecoderConfig, kind: LayerKind, config: PreTrainedConfig) -> None:
        super().__init__(sizes, kind)
        self.is_normed, self.norm_eps = bool(config.use_qk_norm), float(config.rms_norm_eps)
        self.is_tuned = bool(config.attn_temperature_tuning)
        self.floor_scale, self.attention_scale = config.floor_scale, config.attn_scale

    def _place(self, query: torch.Tensor, key: torch.Tensor, view: AttentionView) -> tuple[torch.Tensor, torch.Tensor]:
        if view.angles is not None:
            query, key = super()._place(query, key, view)
            return (self._normalized(query), self._normalized(key)) if self.is_normed else (query, key)
        if self.is_tuned:
            steps = torch.floor((view.positions_BT.float() + 1.0) / self.floor_scale)
            factor = torch.log1p(steps) * self.attention_scale + 1.0
            query = (query * factor[:, None, :, None]).to(query.dtype)
        return query, key

    def _normalized(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.norm_eps)).to(x.dtype)


def build(config: PreTrainedConfig) -> Decoder:
    rotary = common.read_rotary(config, is_interleaved=True)
    chunks = [config.attention_chunk_size if kind == "chunked_attention" else None for kind in config.layer_types]
    mixture = MixtureConfig(
        num_experts=config.num_local_experts,
        experts_per_token=config.num_experts_per_tok,
        intermediate_size=config.intermediate_size,
        score="sigmoid",
        weighs_input=True,
        is_transposed=True,
        shared_size=config.intermediate_size,
    )

    def feed_forward(sizes: DecoderConfig, layer: int) -> nn.Module:
        return Mixture(sizes, mixture) if layer in config.moe_layers else GatedMLP(sizes)

    return common.read_decoder(
        config,
        (
            LayerKind(rotary=rotary if has_rotary else None, chunk=chunk)
            for has_rotary, chunk in zip(config.no_rope_layers, chunks, strict=True)
        ),
        intermediate_size=config.intermediate_size_mlp,
        has_attention_bias=config.attention_bias,
        attention=lambda sizes, layer: Llama4Attention(sizes, sizes.layers[layer], config),
        feed_forward=feed_forward,
    )
