"""The families of NxD Inference's classes by the name of their module."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Family:
    """A row of the table."""

    name: str
    """Begins the names of its classes, as transformers' do."""
    model_types: tuple[str, ...]
    """Architectures."""
    has_experts: bool = False


FAMILIES = {
    "bloom": Family("Bloom", ("bloom",)),
    "cohere2": Family("Cohere2", ("cohere2",)),
    "dbrx": Family("Dbrx", ("dbrx",), has_experts=True),
    "deepseek": Family("DeepseekV3", ("deepseek_v3",), has_experts=True),
    "exaone4": Family("Exaone4", ("exaone4",)),
    "falcon": Family("Falcon", ("falcon",)),
    "gemma": Family("Gemma", ("gemma",)),
    "gemma2": Family("Gemma2", ("gemma2",)),
    "gemma3": Family("Gemma3", ("gemma3_text",)),
    "glm4": Family("Glm4", ("glm4",)),
    "gpt2": Family("GPT2", ("gpt2",)),
    "gpt_neox": Family("GPTNeoX", ("gpt_neox",)),
    "gpt_oss": Family("GptOss", ("gpt_oss",), has_experts=True),
    "gptj": Family("GPTJ", ("gptj",)),
    "granite": Family("Granite", ("granite",)),
    "lfm2": Family("Lfm2", ("lfm2",)),
    "llama": Family("Llama", ("llama",)),
    "llama4": Family("Llama4", ("llama4_text",), has_experts=True),
    "mistral": Family("Mistral", ("mistral",)),
    "mixtral": Family("Mixtral", ("mixtral",), has_experts=True),
    "mpt": Family("Mpt", ("mpt",)),
    "olmo2": Family("Olmo2", ("olmo2",)),
    "opt": Family("OPT", ("opt",)),
    "phi": Family("Phi", ("phi",)),
    "phi3": Family("Phi3", ("phi3",)),
    "qwen2": Family("Qwen2", ("qwen2",)),
    "qwen2_moe": Family("Qwen2Moe", ("qwen2_moe",), has_experts=True),
    "qwen3": Family("Qwen3", ("qwen3",)),
    "qwen3_moe": Family("Qwen3Moe", ("qwen3_moe",), has_experts=True),
    "qwen3_next": Family("Qwen3Next", ("qwen3_next",), has_experts=True),
    "smollm3": Family("SmolLM3", ("smollm3",)),
    "stablelm": Family("StableLm", ("stablelm",)),
    "starcoder2": Family("Starcoder2", ("starcoder2",)),
}
"""Families by the name of their module, `models.<name>.modeling_<name>`."""
