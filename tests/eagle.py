"""Random EAGLE drafts of tiny decoders, in the form of published checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

NUM_GUESSED, WIDTH = 64, 24
"""Tokens that a draft can guess, and its own hidden width."""


def draft_config(target: Any) -> LlamaConfig:
    """The configuration of a draft of a decoder with this configuration."""
    return LlamaConfig(
        hidden_size=WIDTH,
        target_hidden_size=target.hidden_size,
        intermediate_size=40,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        vocab_size=target.vocab_size,
        draft_vocab_size=NUM_GUESSED,
        eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 2, 3]},
        architectures=["LlamaForCausalLMEagle3"],
    )


def draft_tensors(config: LlamaConfig) -> dict[str, torch.Tensor]:
    """Random tensors of a draft."""
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens": (config.vocab_size, WIDTH),
        "fc": (WIDTH, 3 * config.target_hidden_size),
        "midlayer.self_attn.q_proj": (24, 2 * WIDTH),
        "midlayer.self_attn.k_proj": (12, 2 * WIDTH),
        "midlayer.self_attn.v_proj": (12, 2 * WIDTH),
        "midlayer.self_attn.o_proj": (WIDTH, 24),
        "midlayer.mlp.gate_proj": (40, WIDTH),
        "midlayer.mlp.up_proj": (40, WIDTH),
        "midlayer.mlp.down_proj": (WIDTH, 40),
        "lm_head": (NUM_GUESSED, WIDTH),
        **dict.fromkeys((f"midlayer.{name}" for name in ("input_layernorm", "hidden_norm")), (WIDTH,)),
        **dict.fromkeys(("midlayer.post_attention_layernorm", "norm"), (WIDTH,)),
    }
    generator = torch.Generator().manual_seed(0)
    made = {f"{name}.weight": torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    tokens = torch.randperm(config.vocab_size, generator=generator)[:NUM_GUESSED].sort().values
    mask = torch.zeros(config.vocab_size, dtype=torch.bool).index_fill(0, tokens, True)
    return made | {"d2t": tokens - torch.arange(NUM_GUESSED), "t2d": mask}


def first_draft(target: Any) -> tuple[LlamaConfig, dict[str, torch.Tensor]]:
    """The configuration and random tensors of a draft of the first generation, without embedding and head."""
    config = LlamaConfig(**{**target.to_dict(), "num_hidden_layers": 1})
    width, head = config.hidden_size, config.hidden_size // config.num_attention_heads
    attention, mlp, wide = "layers.0.self_attn", "layers.0.mlp", config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (width, 2 * width),
        "fc.bias": (width,),
        f"{attention}.q_proj.weight": (width, width),
        f"{attention}.k_proj.weight": (config.num_key_value_heads * head, width),
        f"{attention}.v_proj.weight": (config.num_key_value_heads * head, width),
        f"{attention}.o_proj.weight": (width, width),
        f"{mlp}.gate_proj.weight": (wide, width),
        f"{mlp}.up_proj.weight": (wide, width),
        f"{mlp}.down_proj.weight": (width, wide),
        "layers.0.post_attention_layernorm.weight": (width,),
    }
    generator = torch.Generator().manual_seed(0)
    return config, {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def saved(config: LlamaConfig, tensors: dict[str, torch.Tensor], folder: Path) -> Path:
    """Write the folder of a draft."""
    config.save_pretrained(folder)
    save_file(tensors, folder / "model.safetensors")
    return folder
