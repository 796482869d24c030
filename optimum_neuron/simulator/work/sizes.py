"""Sizes of a decoder, as far as its work depends on them, and the work of its latent attention and recurrent states.

`reading.py` reads them off a configuration. They do not depend on cores, batches, or lengths.

Published stacks multiply latents without expanding them, also in a prompt, and every core keeps them whole
(`DeepseekV3Attention` of NxD Inference). They scan a prompt token by token (`NeuronGatedDeltaNet`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from ...compiler import product_cycles
from .record import Attention, Work
from .roles import Role

SCAN_PASSES = 4
"""Passes over a recurrent state for each token: decay, product with the key, update, product with the query."""
STATE_BYTES = 4
"""Of an element of a recurrent state."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Projection:
    """Matmuls of one role in a layer. Matmuls that read the same values are joined into one."""

    role: Role
    """Everything "in" and "up" is split by columns, "out" and "down" by rows."""
    inner: int
    columns: int
    """Size of their results, all together."""
    num_matrices: int
    """Number of joined matmuls."""
    num_biases: int = 0
    """Elements of their biases, all together."""

    @property
    def num_elements(self) -> int:
        """Weights."""
        return self.inner * self.columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class Norm:
    """A norm of a layer."""

    of: Literal["stream", "queries", "keys", "state"]
    """What it normalizes: the residual stream or another tensor as wide as the norm, or heads, also of a state."""
    width: int
    """Elements of its weight: of one head, or of all heads together."""
    num_vectors: int
    """Weight and bias."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentSizes:
    """Multi-head latent attention (DeepSeek-V2, section 2.1)."""

    rank: int
    """Width of the latent of keys and values."""
    rotary: int
    """Width of the key with rotary positions, which all heads share."""
    plain: int
    """Width of a query head without positions."""
    value: int
    """Width of a value head."""

    @property
    def kept(self) -> int:
        """Elements that the cache keeps of a token."""
        return self.rank + self.rotary

    def attention(self, sizes: Attention, *, cache_bytes: float) -> Work:
        """Attention of queries in the space of latents; the heads of a sequence are rows of one product.

        `cache_bytes` are those of one element; a prompt reads no cache.
        """
        rows, is_step = sizes.num_heads * sizes.queries, sizes.queries == 1
        each = product_cycles(rows, self.kept, sizes.keys) + product_cycles(rows, sizes.keys, self.rank)
        flops = 2 * sizes.num_rows * rows * sizes.keys * (self.kept + self.rank)
        return Work(
            flops=flops,
            product_flops=flops,
            attention_cycles=sizes.num_rows * each,
            softmax_elements=sizes.num_rows * rows * sizes.keys,
            state_bytes=int(sizes.num_rows * sizes.keys * self.kept * cache_bytes) if sizes.is_cross else 0,
            attention_reads=sizes.num_rows if is_step else 0,
            num_attentions=int(is_step),
        )

    def absorbed(self, *, num_heads: int, tokens: int) -> Work:
        """Products of queries and of results with the weight from latents to heads; they leave PSUM in a pass each."""
        flops = 2 * tokens * num_heads * self.rank * (self.plain + self.value)
        each = product_cycles(tokens, self.plain, self.rank) + product_cycles(tokens, self.rank, self.value)
        return Work(
            flops=flops,
            product_flops=flops,
            tensor_cycles=num_heads * each,
            vector_elements=tokens * num_heads * (self.rank + self.value),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateSizes:
    """A recurrent state, which tokens change in order."""

    path: str
    """Module of the layer that has it."""
    num_heads: int
    """Heads, which the cores share."""
    elements: int
    """Elements of the state of one head."""
    value_dim: int
    """Width of a head's result; 0 where unknown."""
    window: int
    """Elements that convolutions keep of the tokens before."""

    def local_elements(self, num_cores: int) -> int:
        """Elements of the state of one sequence that one core keeps."""
        return math.ceil(self.num_heads / num_cores) * self.elements


def scan(tokens: int, elements: int, *, is_step: bool) -> Work:
    """Each of `tokens` changes a state of so many elements; a step reads that of each sequence from HBM."""
    changed = tokens * elements
    return Work(
        flops=2 * SCAN_PASSES * changed,
        vector_elements=SCAN_PASSES * changed,
        state_bytes=changed * STATE_BYTES if is_step else 0,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerSizes:
    """One kind of layer."""

    count: int
    projections: tuple[Projection, ...]
    """Matmuls with weights; those of experts are of one expert."""
    num_experts: int
    """Experts of a layer; 0 where it is dense."""
    has_attention: bool
    """Whether it reads keys and values."""
    state: StateSizes | None
    """Its recurrent state, where it has one."""
    norms: tuple[Norm, ...]
    window: int | None
    """Tokens that attention looks back at most; None for all."""
    other_elements: int
    """Parameters that are part of none of these."""
    state_parameters: int
    """Those of them that belong to the heads of a recurrent state: its decay, and convolutions before it."""
    float32_elements: int
    """Buffers, such as the correction of a router: they are kept in float32."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderSizes:
    """A decoder, as far as its work depends on it."""

    kind: Literal["decoder", "mixture", "hybrid"]
    """Class of its estimates: a mixture has layers with experts, a hybrid has layers that scan their tokens."""
    model_type: str
    """As transformers spells it."""
    hidden: int
    """Size of the residual stream."""
    vocab: int
    """Tokens that logits cover."""
    num_heads: int
    num_kv_heads: int
    head_dim: int
    latent: LatentSizes | None
    """Sizes of latent attention, where it attends so."""
    layers: tuple[LayerSizes, ...]
    experts_per_token: int
    """Experts that a token takes; 0 where none."""
    tied: bool
    """The head is the embedding."""
    position_width: int
    """Elements of a position in a learned table; 0 without one."""
    position_elements: int
    num_end_vectors: int
    """Weight and bias of the norm before the head."""
    has_head_bias: bool
    num_parameters: int
    """All parameters, a tied head once."""
    max_positions: int | None
    """Positions that the configuration allows."""
    dtype: str | None
    """Dtype of the checkpoint, where the configuration says it."""

    @property
    def num_layers(self) -> int:
        """Layers of all kinds."""
        return sum(layer.count for layer in self.layers)
