"""Where each parameter comes from in a checkpoint; several sources are joined along dimension 0.

`{}` stands for the layer. A row ending in ".weight" also holds for ".bias" where the configuration has one.
"""

from __future__ import annotations

WEIGHT_MAP: dict[str, tuple[str, ...]] = {
    "embed.weight": ("model.embed_tokens.weight",),
    "layers.{}.attention_norm.weight": ("model.layers.{}.input_layernorm.weight",),
    "layers.{}.attention.qkv.weight": (
        "model.layers.{}.self_attn.q_proj.weight",
        "model.layers.{}.self_attn.k_proj.weight",
        "model.layers.{}.self_attn.v_proj.weight",
    ),
    "layers.{}.attention.out.weight": ("model.layers.{}.self_attn.o_proj.weight",),
    "layers.{}.mlp_norm.weight": ("model.layers.{}.post_attention_layernorm.weight",),
    "layers.{}.mlp.gate_up.weight": (
        "model.layers.{}.mlp.gate_proj.weight",
        "model.layers.{}.mlp.up_proj.weight",
    ),
    "layers.{}.mlp.down.weight": ("model.layers.{}.mlp.down_proj.weight",),
    "head.norm.weight": ("model.norm.weight",),
    "head.weight": ("lm_head.weight",),
}
