"""What a configuration of transformers says about its model, under the names that most architectures use.

>>> from types import SimpleNamespace
>>> facts = facts_of(SimpleNamespace(head_dim=64))
>>> facts.head_dim, facts.layer_types
(64, None)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ModelError
from .foreign import Facts

if TYPE_CHECKING:
    from transformers import PretrainedConfig


class ModelFacts(Facts):
    """Attributes of a configuration, read when they are asked for; None if the architecture has no such attribute."""

    attention_bias: bool | None
    attention_chunk_size: int | None
    attention_layers: Sequence[str] | None
    decoder_vocab_size: int | None
    draft_vocab_size: int | None
    dtype: Any
    eos_token_id: int | Sequence[int] | None
    feat_extract_norm: str | None
    head_dim: int | None
    hidden_act: str | None
    hidden_size: int | None
    image_size: Any
    intermediate_size: int | None
    is_decoder: bool | None
    is_eagle: bool | None
    is_encoder_decoder: bool | None
    is_matryoshka: bool | None
    kv_lora_rank: int | None
    layer_types: Sequence[str] | None
    matryoshka_dimensions: Sequence[int] | None
    max_length: int | None
    max_position_embeddings: int | None
    mlp_bias: bool | None
    model_type: str | None
    n_words: int | None
    norm_before_residual: bool | None
    num_attention_heads: int | None
    num_channels: int | None
    num_experts_per_tok: int | None
    num_experts_per_token: int | None
    num_hidden_layers: int | None
    num_key_value_heads: int | None
    output_router_logits: bool | None
    pad_index: int | None
    pad_token_id: int | None
    patch_size: Any
    per_layer_attributes: Sequence[str] | None
    position_embedding_type: str | None
    problem_type: str | None
    rope_parameters: dict[str, Any] | None
    sbert_ce_default_activation_function: str | None
    sentence_transformers: dict[str, Any] | None
    sliding_window: int | None
    target_hidden_size: int | None
    task_specific_params: dict[str, Any] | None
    text_config: Any
    tie_word_embeddings: bool | None
    trigram_input: bool | None
    type_vocab_size: int | None
    use_cache: bool | None
    vision_config: PretrainedConfig | None
    vocab_size: int | None
    window_size: int | None


def facts_of(config: object) -> ModelFacts:
    """Return the facts of a configuration, or of its text model's."""
    return ModelFacts(config)


def require_equal_layers(text: PretrainedConfig, names: Sequence[str], *, hint: str) -> None:
    """Check that a transformers configuration has one value of some fields for all layers."""
    if varying := sorted(set(names) & set(facts_of(text).per_layer_attributes or ())):
        raise ModelError(
            f"The layers of this {text.model_type} model differ in {', '.join(varying)}. One value is implemented.",
            hint=hint,
            model_type=text.model_type,
            fields=varying,
        )
