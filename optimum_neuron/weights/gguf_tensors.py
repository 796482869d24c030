"""Which tensor of a GGUF file is which of a transformers model, where this package reads the file itself.

llama.cpp changes the numbers of some architectures, or joins their tensors; transformers converts those.

    names = gguf_names(model, "llama")
    source = GgufSource(GgufFile.open(path), names)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..base.model_facts import facts_of
from ..base.transformers_types import PreTrainedModel
from .gguf import GgufName

_PERMUTED = ("llama",)
"""Architectures of llama.cpp whose queries and keys have their rows by halves of a head."""
_CHANGED = (
    *("bloom", "gemma2", "gemma3", "gpt2", "gpt-oss", "lfm2", "mamba", "minimax-m2", "nemotron", "t5", "t5encoder"),
    *("qwen2moe", "qwen3moe", "qwen35", "qwen35moe"),
)
"""Architectures of which llama.cpp changes numbers or joins tensors, so transformers converts them."""


def gguf_names(model: PreTrainedModel, architecture: str) -> dict[str, GgufName] | None:
    """Return where the file has each tensor of a model, or None if transformers converts them.

    Args:
        model: The model; its tensors may be on the device "meta".
        architecture: The name that llama.cpp gives to its architecture, `general.architecture` of the file.
    """
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    kinds = {name: kind for kind, name in MODEL_ARCH_NAMES.items()}
    if architecture not in kinds or architecture in _CHANGED:
        return None
    table = get_tensor_name_map(kinds[architecture], model.config.num_hidden_layers)
    return dict(_placed(model, architecture, table))


def _placed(model: PreTrainedModel, architecture: str, table: Any) -> Iterator[tuple[str, GgufName]]:
    config = model.config
    heads = {".attn_q.": config.num_attention_heads, ".attn_k.": facts_of(config).num_key_value_heads}
    for name in model.state_dict():
        module, _, end = name.rpartition(".")
        stored = table.get_name(module) if end in ("weight", "bias") else None
        if stored is None:
            continue
        stored = f"{stored}.{end}"
        is_permuted = architecture in _PERMUTED
        own = next((number for part, number in heads.items() if part in stored), None) if is_permuted else None
        yield name, GgufName(name=stored, num_heads=int(own or 0))
