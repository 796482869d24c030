"""What a configuration of transformers says about its model, under the names that most architectures use.

>>> from types import SimpleNamespace
>>> facts = facts_of(SimpleNamespace(head_dim=64))
>>> facts.head_dim, facts.layer_types
(64, None)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PretrainedConfig


class ModelFacts:
    """Attributes of a configuration, read when they are asked for; None if the architecture has no such attribute."""

    attention_chunk_size: int | None
    head_dim: int | None
    hidden_size: int | None
    is_encoder_decoder: bool | None
    layer_types: Sequence[str] | None
    max_position_embeddings: int | None
    num_attention_heads: int | None
    num_hidden_layers: int | None
    num_key_value_heads: int | None
    pad_token_id: int | None
    rope_parameters: dict[str, Any] | None
    sliding_window: int | None
    tie_word_embeddings: bool | None
    type_vocab_size: int | None
    vocab_size: int | None

    def __init__(self, config: PretrainedConfig) -> None:
        self._config = config

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._config, name, None)


def facts_of(config: PretrainedConfig) -> ModelFacts:
    """Return the facts of a configuration, or of its text model's."""
    return ModelFacts(config)
