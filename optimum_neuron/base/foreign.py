"""Attributes of objects of other libraries that only some of their classes have, read in one place.

An attribute is declared here with its type, and is None for an object without it. Attributes that are not declared are
errors. Configurations of transformers are in `model_facts.py`.

>>> from types import SimpleNamespace
>>> tokenizer_facts(SimpleNamespace(chat_template="{{ messages }}")).is_fast is None
True
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Facts:
    """Attributes of an object, read when they are asked for."""

    def __init__(self, owner: object) -> None:
        self._owner = owner

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in type(self).__annotations__:
                raise AttributeError(f"{type(self).__name__} does not declare {name}.")
            return getattr(self._owner, name, None)


class ModuleFacts(Facts):
    """Attributes of models and layers of transformers, PEFT, diffusers, and users."""

    A_log: torch.Tensor | None
    _keys_to_ignore_on_save: Collection[str] | None
    _no_split_modules: Collection[str] | None
    _tied_weights_keys: Mapping[str, str] | Sequence[str] | None
    active_peft_config: Any
    all_tied_weights_keys: Collection[str] | None
    attention_type: str | None
    attn_temperature_tuning: bool | None
    base_layer: Any
    base_model: Any
    bias: torch.Tensor | None
    config: Any
    conv: torch.nn.Module | None
    dtype: torch.dtype | None
    embed_positions: Any
    encoder_hid_proj: Any
    generation_config: Any
    gradient_checkpointing_enable: Callable[..., None] | None
    image_adapter_scales: list[float] | None
    image_projection_layers: Sequence[torch.nn.Module] | None
    layer_norm: torch.nn.Module | None
    lm_head: torch.nn.Module | None
    lora_magnitude_vector: Any
    main_input_name: str | None
    name_or_path: str | None
    nets: Sequence[torch.nn.Module] | None
    num_embeddings: int | None
    padding_idx: int | None
    preshard_hook: Callable[..., None] | None
    rope_type: str | dict[str, str] | None
    tp_plan: Mapping[str, str] | None
    use_rope: int | None
    weight: torch.Tensor | None


class ParameterFacts(Facts):
    """Attributes that parallel layers, pipelines, and ZeRO-1 set on a parameter, under the names of NxD."""

    expert_model_parallel: bool | None
    fused_qkv: bool | None
    head_dim: int | None
    main_grad: torch.Tensor | None
    num_attention_heads: int | None
    num_key_value_heads: int | None
    sequence_parallel_enabled: bool | None
    shared: bool | None
    tensor_model_parallel: bool | None


class OutputFacts(Facts):
    """Attributes of the result of a model of transformers, which may be a tuple."""

    attention_mask: torch.Tensor | None
    attentions: tuple[torch.Tensor, ...] | None
    hidden_states: tuple[torch.Tensor, ...] | None


class TokenizerFacts(Facts):
    """Attributes of tokenizers and other processors."""

    _build_translation_inputs: Callable[..., Any] | None
    all_special_tokens: Sequence[str] | None
    chat_template: str | dict[str, str] | None
    is_fast: bool | None
    model_max_length: int | None
    pad_token_id: int | None
    response_template: Any
    sampling_rate: int | None


class PipelineFacts(Facts):
    """Attributes of diffusers' pipelines and of their classes."""

    _lora_loadable_modules: Sequence[str] | None
    _optional_components: Sequence[str] | None
    _progress_bar_config: dict[str, Any] | None
    controlnet: Any
    default_sample_size: int | None
    safety_checker: Any
    tokenizer: Any
    transformer: Any
    unet: Any
    vae_scale_factor: int | None
    vae_spatial_compression_ratio: int | None


def module_facts(module: object) -> ModuleFacts:
    """Return the attributes of a model or a layer; None has none."""
    return ModuleFacts(module)


def parameter_facts(parameter: torch.Tensor) -> ParameterFacts:
    """Return the attributes that were set on a parameter."""
    return ParameterFacts(parameter)


def output_facts(output: object) -> OutputFacts:
    """Return the attributes of a model's result."""
    return OutputFacts(output)


def tokenizer_facts(tokenizer: object) -> TokenizerFacts:
    """Return the attributes of a tokenizer, an image processor, or a feature extractor."""
    return TokenizerFacts(tokenizer)


def pipeline_facts(pipeline: object) -> PipelineFacts:
    """Return the attributes of a pipeline of diffusers."""
    return PipelineFacts(pipeline)


def plain_value(value: object) -> Any:
    """Return the value of a member of an enumeration, and anything else as it is.

    >>> import enum
    >>> plain_value(enum.Enum("Method", {"AWQ": "awq"}).AWQ), plain_value("awq")
    ('awq', 'awq')
    """
    return value.value if isinstance(value, enum.Enum) else value


def name_of(function: object) -> str:
    """Return the name of a function or a class, and of anything else its text.

    >>> name_of(len), name_of(3)
    ('len', '3')
    """
    return str(getattr(function, "__name__", function))
