"""The numbers that a decoder family's modules are built from.

It knows nothing of transformers; a family's `config.py` fills it from a checkpoint's configuration.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Sizes and options of a decoder with rotary positions, RMS norms and a gated feed-forward."""

    hidden_size: int
    """Width of the residual stream."""
    num_layers: int
    """Decoder blocks."""
    num_heads: int
    """Query heads."""
    num_kv_heads: int
    """Key and value heads; divides num_heads."""
    head_dim: int
    """Width of one head."""
    intermediate_size: int
    """Width of the gated feed-forward."""
    vocab_size: int
    """Rows of the embedding."""
    norm_eps: float
    """Added to the mean square before the root."""
    inv_freq: tuple[float, ...]
    """Rotary frequencies, head_dim / 2 of them, any scaling applied."""
    rope_scale: float = 1.0
    """Factor on cosine and sine (YaRN's attention factor)."""
    sliding_window: int | None = None
    """Tokens that a query sees, itself included; None for all."""
    attention_bias: bool = False
    """Bias on the query, key and value projections."""
    output_bias: bool = False
    """Bias on the attention's output projection."""
    mlp_bias: bool = False
    """Bias on the feed-forward projections."""
    tie_embeddings: bool = False
    """The head shares the embedding's weight."""

    def __post_init__(self) -> None:
        assert self.num_heads % self.num_kv_heads == 0, "query heads are grouped evenly over key heads"
        assert len(self.inv_freq) * 2 == self.head_dim, "one rotary frequency for each pair"
