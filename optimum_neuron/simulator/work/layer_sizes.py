"""Sizes of one decoder layer, read off the shapes of its parameters and their names.

layer_sizes(layer, text_config).projections
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, Literal

from ...base.transformers_types import PreTrainedConfig
from .mixers import StateSizes, state_sizes

Role = Literal[
    "attention_in",
    "latent_in",
    "absorbed",
    "state_in",
    "attention_out",
    "up",
    "down",
    "router",
    "expert_up",
    "expert_down",
]
"""Of a matrix. In latent attention, `latent_in` makes the latents, and `absorbed` leads from them to heads; `state_in`
are the inputs of a recurrent state."""

_ATTENTION_IN = re.compile(
    r"(^|\.)(q|k|v|qkv)_proj$|(^|\.)q_up$|query_key_value$|q_b_proj|W_pack$"
    r"|(attn|attention)\.(c_attn|Wqkv|qkv|q|k|v|query|key|value)$"
)
_DOWN = re.compile(
    r"((^|\.)down|down_proj|c_proj|fc2|fc_out|wo|w2|dense_4h_to_h|out_proj|o_proj|output_linear|proj_out|linear_2)$"
)
_LATENT_IN = re.compile(r"(^|\.)((q|kv)_a_proj\w*|(q|kv)_down)$")
_ABSORBED = re.compile(r"(^|\.)(kv_b_proj|kv_up)$")
_STATE_IN = re.compile(r"(^|\.)in_proj\w*$")
_GATE = re.compile(r"(^|\.)(gate_proj|g_proj)$")
_JOINED = "gate_up"
"""In the names of gate and up in one matrix. The libraries of published measurements keep them apart."""
_ATTENTION = re.compile(r"(^|\.)(self_attn|self_attention|attn|attention|linear_attn|mixer)(\.|$)")
_ROUTER = re.compile(r"router|(^|\.)gate$")
_OF_QUERIES = re.compile(r"(^|\.)(q|query)_(?!a_)\w*norm$")
_OF_KEYS = re.compile(r"(^|\.)(k|key)_\w*norm$")
_EXPERTS = re.compile(r"(^|\.)experts?(\.|$)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Projection:
    """Matmuls of one role in a layer, joined: those that read the same values are one matmul."""

    role: Role
    """Their roles; everything "in" and "up" is split by columns, "out" and "down" by rows."""
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


def layer_sizes(layer: Any, text: PreTrainedConfig, *, window: int | None = None) -> LayerSizes:
    """Read one layer: matrices by role and by the size of their input, norms, the rest as a number of elements."""
    columns_of: dict[_Key, list[int]] = {}
    biases: dict[str, int] = {}
    inputs: dict[str, _Key] = {}
    norms: dict[str, Norm] = {}
    state = state_sizes(layer)
    num_experts = other = of_state = 0
    for name, parameter in layer.named_parameters():
        path, _, leaf = name.rpartition(".")
        shape = tuple(parameter.shape)
        expert = _EXPERTS.search(name) is not None and "shared" not in name
        if expert and len(shape) == 3:
            num_experts = shape[0]
            role: Role = "expert_down" if _DOWN.search(leaf) else "expert_up"
            inner = text.hidden_size if role == "expert_up" else math.prod(shape[1:]) // text.hidden_size
            columns_of.setdefault((path, role, inner), []).extend(_matrices(name, math.prod(shape[1:]) // inner))
        elif len(shape) == 2 and leaf == "weight":
            is_of_gpt2 = type(layer.get_submodule(path)).__name__ == "Conv1D"  # which stores inner x columns
            columns, inner = reversed(shape) if is_of_gpt2 else shape
            if expert:
                match = re.search(r"experts\.(\d+)", path)
                index = int(match.group(1)) if match else 0
                num_experts = max(num_experts, index + 1)
                if index:
                    continue
            inputs[path] = _key(path, columns, inner, expert=expert)
            columns_of.setdefault(inputs[path], []).extend(_matrices(name, columns))
        elif len(shape) == 1 and "norm" in type(layer.get_submodule(path)).__name__.lower():
            before = norms[path].num_vectors if path in norms else 0
            norms[path] = Norm(of=_normalized(path, shape[0], state), width=shape[0], num_vectors=before + 1)
        elif len(shape) == 1 and leaf == "bias" and not expert:
            biases[path] = shape[0]
        elif state is not None and _is_inside(path, state.path):
            of_state += parameter.numel()
        else:
            other += parameter.numel()
    other += sum(size for path, size in biases.items() if path not in inputs)
    projections = tuple(
        Projection(
            role=key[1],
            inner=key[2],
            columns=sum(widths),
            num_matrices=len(widths),
            num_biases=sum(size for path, size in biases.items() if inputs.get(path) == key),
        )
        for key, widths in columns_of.items()
    )
    return LayerSizes(
        count=1,
        state=state,
        projections=projections,
        num_experts=num_experts,
        has_attention=state is None and any(p.role == "attention_in" for p in projections),
        norms=tuple(norms.values()),
        window=window,
        other_elements=other,
        state_parameters=of_state,
        float32_elements=sum(layer.state_dict()[name].numel() for name in _buffers(layer)),
    )


_Key = tuple[str, Role, int]
"""Module, role and input size of matrices that are multiplied together."""


def _key(path: str, columns: int, inner: int, *, expert: bool) -> _Key:
    """A weight of one column is a gate, which every core keeps whole, as routers are."""
    role = "router" if columns == 1 else role_of(path, expert=expert)
    return path if role == "router" else path.rpartition(".")[0], role, inner


def _buffers(layer: Any) -> list[str]:
    """Names of the buffers that a checkpoint holds."""
    return [name for name, _ in layer.named_buffers() if name in layer.state_dict()]


def _is_inside(path: str, module: str) -> bool:
    return f"{path}.".startswith(f"{module}.")


def _normalized(path: str, width: int, state: StateSizes | None) -> Literal["stream", "queries", "keys", "state"]:
    if state is not None and _is_inside(path, state.path) and width == state.value_dim:
        return "state"
    return "queries" if _OF_QUERIES.search(path) else "keys" if _OF_KEYS.search(path) else "stream"


def _matrices(name: str, columns: int) -> list[int]:
    """Columns of each matrix of a weight: gate and up are two, also where a checkpoint joins them."""
    return [columns // 2] * 2 if is_joined(name) else [columns]


def is_joined(path: str) -> bool:
    """Return whether a weight is gate and up in one matrix."""
    return _JOINED in path


def role_of(path: str, *, expert: bool = False) -> Role:
    """Role of a matrix of a layer, by its module path."""
    down = _DOWN.search(path) is not None
    if _ROUTER.search(path):
        return "router"
    if expert:
        return "expert_down" if down else "expert_up"
    if _LATENT_IN.search(path):
        return "latent_in"
    if _ABSORBED.search(path):
        return "absorbed"
    if _ATTENTION_IN.search(path):
        return "attention_in"
    if _ATTENTION.search(path):
        return "state_in" if _STATE_IN.search(path) else "up" if _GATE.search(path) else "attention_out"
    return "down" if down else "up"
