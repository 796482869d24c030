"""Text encoders of diffusion pipelines, counted from their configuration: CLIP's text model and T5's encoder.

walk_t5(layers, config, batch=2, tokens=77)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..layers import WRITTEN_NORM_PASSES, Layers

CLIP: Mapping[str, Any] = {
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
    "vocab_size": 49408,
    "projection_dim": 512,
    "hidden_act": "quick_gelu",
}
"""Defaults of missing fields in a CLIP configuration."""
T5: Mapping[str, Any] = {
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_heads": 8,
    "vocab_size": 32128,
    "feed_forward_proj": "relu",
    "relative_attention_num_buckets": 32,
}
"""The same of T5."""
PASSES = {"quick_gelu": 3, "gelu_new": 8}
"""Passes of activations that are written out; others take one."""


def walk_clip(layers: Layers, config: Mapping[str, Any], *, batch: int, tokens: int, projects: bool) -> None:
    """Count one run of CLIP's text model (Radford et al. 2021), with the projection of its pooled token or without."""
    chosen = {**CLIP, **config}
    wide, heads, rows = chosen["hidden_size"], chosen["num_attention_heads"], batch * tokens
    layers.table(chosen["vocab_size"], wide, rows)
    layers.table(chosen["max_position_embeddings"], wide, tokens)
    layers.elementwise(rows * wide)
    for _ in range(chosen["num_hidden_layers"]):
        layers.norm(rows * wide, 2 * wide)
        layers.linear(rows, wide, wide, count=3)  # query, key, value
        layers.attention(batch * heads, tokens, tokens, wide // heads)
        layers.linear(rows, wide, wide)
        layers.elementwise(rows * wide)
        layers.norm(rows * wide, 2 * wide)
        layers.linear(rows, wide, chosen["intermediate_size"])
        layers.elementwise(rows * chosen["intermediate_size"], times=PASSES.get(chosen["hidden_act"], 1))
        layers.linear(rows, chosen["intermediate_size"], wide)
        layers.elementwise(rows * wide)
    layers.norm(rows * wide, 2 * wide)
    if projects:
        layers.linear(batch, wide, chosen["projection_dim"], bias=False)


def walk_t5(layers: Layers, config: Mapping[str, Any], *, batch: int, tokens: int) -> None:
    """Count one run of T5's encoder (Raffel et al. 2020); cores share its heads and the wide part of its MLP."""
    chosen = {**T5, **config}
    wide, heads, size, rows = chosen["d_model"], chosen["num_heads"], chosen["d_kv"], batch * tokens
    gated, _, activation = str(chosen["feed_forward_proj"]).rpartition("-")
    passes = PASSES["gelu_new"] + 1 if (gated, activation) == ("gated", "gelu") else 2 if gated else 1
    layers.table(chosen["vocab_size"], wide, rows)
    layers.table(chosen["relative_attention_num_buckets"], heads, tokens**2)
    for _ in range(chosen["num_layers"]):
        layers.norm(rows * wide, wide, passes=WRITTEN_NORM_PASSES)
        layers.linear(rows, wide, heads * size, bias=False, split="columns", count=3)
        local_heads = batch * -(-heads // layers.num_cores)
        layers.elementwise(local_heads * tokens**2)
        layers.attention(local_heads, tokens, tokens, size)
        layers.linear(rows, heads * size, wide, bias=False, split="rows")
        layers.elementwise(rows * wide)
        layers.norm(rows * wide, wide, passes=WRITTEN_NORM_PASSES)
        layers.linear(rows, wide, chosen["d_ff"], bias=False, split="columns", count=2 if gated else 1)
        layers.elementwise(rows * chosen["d_ff"], times=passes, split=True)
        layers.linear(rows, chosen["d_ff"], wide, bias=False, split="rows")
        layers.elementwise(rows * wide)
    layers.norm(rows * wide, wide, passes=WRITTEN_NORM_PASSES)
