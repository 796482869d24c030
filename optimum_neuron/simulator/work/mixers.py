"""Layers that keep no keys and values of each head: latent attention, and states that each token changes.

Work of both counters: of a decoder's sizes (`decoder.py`) and of its compiled graphs (`published.py`). Published stacks
multiply latents without expanding them, also in a prompt, and every core keeps them whole (`DeepseekV3Attention` of NxD
Inference). They scan a prompt token by token (`NeuronGatedDeltaNet`).

    latent.attention(num_rows=1, num_heads=16, queries=1, keys=512)
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from ...base.transformers_types import PreTrainedConfig
from ...compiler import product_cycles
from .record import Attention, Work

SCAN_PASSES = 4
"""Passes over a recurrent state for each token: decay, product with the key, update, product with the query."""
STATE_BYTES = 4
"""Of an element of a recurrent state."""


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


def latent_sizes(text: PreTrainedConfig) -> LatentSizes | None:
    """Read latent attention off a configuration; None without it."""
    if not getattr(text, "kv_lora_rank", None):
        return None
    names = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    rank, rotary, plain, value = (int(getattr(text, name, None) or 0) for name in names)
    return LatentSizes(rank=rank, rotary=rotary, plain=plain, value=value)


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


def state_sizes(layer: Any) -> StateSizes | None:
    """Read the state that a layer carries over tokens; None without one."""
    for path, module in layer.named_modules():
        decay = getattr(module, "A_log", None)
        if decay is None:
            continue
        sizes = vars(module)
        keys = sizes.get("head_k_dim") or sizes.get("ssm_state_size", 0)
        values = int(sizes.get("head_v_dim") or sizes.get("head_dim", 0))
        num_heads, elements = decay.shape if decay.dim() == 2 else (decay.numel(), int(keys) * values)
        window = sum(
            child.out_channels * (child.kernel_size[0] - 1)
            for child in module.modules()
            if type(child).__name__ == "Conv1d"
        )
        return StateSizes(path=path, num_heads=num_heads, elements=elements, value_dim=values, window=window)
    return None


def scan(tokens: int, elements: int, *, is_step: bool) -> Work:
    """Each of `tokens` changes a state of so many elements; a step reads that of each sequence from HBM."""
    changed = tokens * elements
    return Work(
        flops=2 * SCAN_PASSES * changed,
        vector_elements=SCAN_PASSES * changed,
        state_bytes=changed * STATE_BYTES if is_step else 0,
    )
