"""Sizes of one decoder layer, read off the shapes of its parameters and their names.

layer_sizes(layer, text_config).projections
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, Literal

Role = Literal["attention_in", "attention_out", "up", "down", "expert_up", "expert_down"]

_ATTENTION_IN = re.compile(
    r"(^|\.)(q|k|v|qkv)_proj$|query_key_value$|[qk]v?_[ab]_proj|W_pack$"
    r"|(attn|attention)\.(c_attn|Wqkv|qkv|q|k|v|query|key|value)$"
)
_DOWN = re.compile(
    r"(down_proj|c_proj|fc2|fc_out|wo|w2|dense_4h_to_h|out_proj|o_proj|output_linear|proj_out|linear_2)$"
)
_GATE = re.compile(r"(^|\.)(in_proj\w*|gate_proj|g_proj)$")
_JOINED = "gate_up"
"""In the names of gate and up in one matrix. The libraries of published measurements keep them apart."""
_ATTENTION = re.compile(r"(^|\.)(self_attn|self_attention|attn|attention|linear_attn|mixer)(\.|$)")
_ROUTER = re.compile(r"router|(^|\.)gate$")
_EXPERTS = re.compile(r"(^|\.)experts?(\.|$)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Projection:
    """Matmuls of one role in a layer, joined: those that read the same values are one matmul."""

    role: Role
    """Their roles; everything "in" and "up" is split by columns, "out" and "down" by rows."""
    inner: int
    """Size of their input."""
    columns: int
    """Size of their results, all together."""
    num_matrices: int
    """Number of joined matmuls."""

    @property
    def num_elements(self) -> int:
        """Weights."""
        return self.inner * self.columns


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
    state_heads: int
    """Heads of its recurrent state; 0 where it has none."""
    state_elements: int
    """Elements of the state of one head."""
    other_elements: int
    """Norms, biases, routers."""


def layer_sizes(layer: Any, text: Any) -> LayerSizes:
    """Read one layer: matrices by role and by the size of their input, the rest as a number of elements."""
    columns_of: dict[tuple[Role, int], list[int]] = {}
    num_experts = other = 0
    for name, parameter in layer.named_parameters():
        path, _, leaf = name.rpartition(".")
        shape = tuple(parameter.shape)
        expert = _EXPERTS.search(name) is not None and "shared" not in name
        if expert and len(shape) == 3:
            num_experts = shape[0]
            role: Role = "expert_down" if _DOWN.search(leaf) else "expert_up"
            inner = text.hidden_size if role == "expert_up" else math.prod(shape[1:]) // text.hidden_size
            columns_of.setdefault((role, inner), []).extend(_matrices(name, math.prod(shape[1:]) // inner))
        elif len(shape) == 2 and leaf == "weight" and min(shape) > 1 and not _ROUTER.search(path):
            columns, inner = reversed(shape) if _is_transposed(layer, path) else shape
            if expert:
                match = re.search(r"experts\.(\d+)", path)
                index = int(match.group(1)) if match else 0
                num_experts = max(num_experts, index + 1)
                if index:
                    continue
            columns_of.setdefault((_role(path, expert), inner), []).extend(_matrices(name, columns))
        else:
            other += parameter.numel()
    projections = tuple(
        Projection(role=role, inner=inner, columns=sum(widths), num_matrices=len(widths))
        for (role, inner), widths in columns_of.items()
    )
    heads, elements = _recurrent_state(layer)
    return LayerSizes(
        count=1,
        state_heads=heads,
        state_elements=elements,
        projections=projections,
        num_experts=num_experts,
        has_attention=any(p.role == "attention_in" for p in projections),
        other_elements=other,
    )


def _matrices(name: str, columns: int) -> list[int]:
    """Columns of each matrix of a weight: gate and up are two, also where a checkpoint joins them."""
    return [columns // 2] * 2 if _JOINED in name else [columns]


def _recurrent_state(layer: Any) -> tuple[int, int]:
    """Heads of the state that a scan over tokens carries, and elements of each; (0, 0) without a scan."""
    for module in layer.modules():
        decay = getattr(module, "A_log", None)
        if decay is None:
            continue
        if decay.dim() == 2:
            heads, elements = decay.shape
            return heads, elements
        sizes = vars(module)
        keys = sizes.get("head_k_dim") or sizes.get("ssm_state_size", 0)
        values = sizes.get("head_v_dim") or sizes.get("head_dim", 0)
        return decay.numel(), int(keys) * int(values)
    return 0, 0


def _is_transposed(layer: Any, path: str) -> bool:
    """Return whether a module stores its weight as inner x columns, as GPT-2 does."""
    return type(layer.get_submodule(path)).__name__ == "Conv1D"


def _role(path: str, expert: bool) -> Role:
    down = _DOWN.search(path) is not None
    if expert:
        return "expert_down" if down else "expert_up"
    if _ATTENTION_IN.search(path):
        return "attention_in"
    if _ATTENTION.search(path):
        return "up" if _GATE.search(path) else "attention_out"
    return "down" if down else "up"
