"""The numbers and options that a decoder family's modules are built from.

It knows nothing of transformers; a family fills it from a checkpoint's configuration (`reading.py` helps).
"""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Norm:
    """What a norm computes."""

    eps: float
    """Added to the mean square, or to the variance, before the root."""
    kind: Literal["rms", "layer"] = "rms"
    """Root mean square, or mean and variance."""
    has_bias: bool = False
    """A layer norm adds a bias."""
    adds_one: bool = False
    """The weight is a difference from 1, as in Gemma."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rotary:
    """Rotary positions (Su et al. 2021)."""

    inv_freq: tuple[float, ...]
    """Frequencies, any scaling applied; two channels of a head for each, and further channels are not rotated."""
    scale: float = 1.0
    """Factor on cosine and sine (YaRN's attention factor)."""
    is_interleaved: bool = False
    """A pair is channels (2i, 2i + 1); otherwise (i, i + half of the rotated width)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerKind:
    """What may differ between the layers of a decoder."""

    rotary: Rotary | None = None
    """Rotary positions; None for none."""
    window: int | None = None
    """Tokens that a query sees, itself included; None for all."""
    chunk: int | None = None
    """A query sees only tokens of its own chunk, which begin at multiples of this number; None for all."""
    scale: float | None = None
    """Factor on attention scores; None for 1 / sqrt(head_dim)."""

    @property
    def reach(self) -> int | None:
        """Most tokens that a query sees; None for all."""
        return self.window or self.chunk

    def within(self, num_tokens: int) -> LayerKind:
        """The same kind without a window or chunk that a sequence of so many tokens does not fill."""
        return (
            self
            if self.reach is None or self.reach < num_tokens
            else dataclasses.replace(self, window=None, chunk=None)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Sizes and options of a decoder; the defaults are Llama's."""

    hidden_size: int
    """Width of the residual stream."""
    num_heads: int
    """Query heads."""
    num_kv_heads: int
    """Key and value heads; divides num_heads."""
    head_dim: int
    """Width of one head."""
    intermediate_size: int
    """Width of the feed-forward."""
    vocab_size: int
    """Rows of the embedding."""
    layers: tuple[LayerKind, ...]
    """Decoder blocks."""
    norm: Norm
    """Every norm of the residual stream."""
    tie_embeddings: bool = False
    """The head shares the embedding's weight."""

    embed_scale: float = 1.0
    """Factor on the embeddings of tokens."""
    embed_norm: Norm | None = None
    """Norm of the embeddings."""
    input_scale: float = 1.0
    """Factor on what the first layer gets, images included."""
    num_positions: int = 0
    """Rows of learned positions; 0 for none."""
    position_offset: int = 0
    """Row of learned positions that position 0 has."""

    alibi_slopes: tuple[float, ...] = ()
    """Slope of each query head's bias by distance; empty for none."""
    has_qkv_bias: bool = False
    """Bias on the query, key and value projections."""
    has_output_bias: bool = False
    """Bias on the attention's output projection."""
    qkv_order: Literal["kinds", "groups"] = "kinds"
    """Rows of the joined projection: all query heads, key heads, value heads; or by key head, its query heads first."""
    qkv_limit: float | None = None
    """Queries, keys and values are clamped to plus and minus this."""
    head_norm: Norm | None = None
    """Norm of queries and keys."""
    head_norm_width: Literal["head", "all heads"] = "head"
    """What `head_norm` is taken over."""
    score_cap: float | None = None
    """Bound of attention scores, by a hyperbolic tangent."""

    activation: str = "silu"
    """A name in `feed_forward.ACTIVATIONS`."""
    is_gated: bool = True
    """The feed-forward has a gate."""
    has_mlp_bias: bool = False
    """Bias on the feed-forward projections."""
    has_transposed_weights: bool = False
    """Weights of projections have their inputs in dimension 0, as in GPT-2."""

    norms: Literal["before", "after", "around"] = "before"
    """Where attention and feed-forward are normalized: their inputs, their results, or both."""
    is_parallel: bool = False
    """Attention and feed-forward have the same input."""
    has_shared_norm: bool = False
    """In parallel, attention and feed-forward share one norm."""
    residual_scale: float = 1.0
    """Factor on what joins the residual stream."""

    has_head_bias: bool = False
    """Bias on the logits."""
    logits_scale: float = 1.0
    """Factor on the logits."""
    logits_cap: float | None = None
    """Bound of the logits, by a hyperbolic tangent."""

    def __post_init__(self) -> None:
        assert self.num_heads % self.num_kv_heads == 0, "query heads are grouped evenly over key heads"

    @property
    def rotaries(self) -> tuple[Rotary, ...]:
        """The different rotary positions of all layers, each once."""
        return tuple(dict.fromkeys(kind.rotary for kind in self.layers if kind.rotary is not None))
