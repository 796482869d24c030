"""What the matrices of a decoder are for, by the names of their modules; the same of the steps of a graph.

>>> role_of("self_attn.q_proj"), role_of("mlp.down_proj")
('attention_in', 'down')
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import Literal

from ...errors import ModelError, NeuronError
from .record import Step

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
_ATTENTION = re.compile(r"(^|\.)(self_attn|self_attention|attn|attention|linear_attn|mixer)(\.|$)")
_ROUTER = re.compile(r"router|(^|\.)gate$")
_JOINED = "gate_up"
"""In the names of gate and up in one matrix. The libraries of published measurements keep them apart."""


def role_of(path: str, *, expert: bool = False) -> Role:
    """Return the role of a matrix of a layer, by its module path."""
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


def is_joined(path: str) -> bool:
    """Return whether a weight is gate and up in one matrix."""
    return _JOINED in path


JOINED_ROLES: tuple[Role, ...] = ("attention_in", "latent_in", "state_in")
"""Matrices of one input that are one for DMA. Their results take two passes: they leave PSUM, and are rotated, scaled,
written to the cache, convolved, or made gates."""


@contextlib.contextmanager
def counting(path: str) -> Iterator[None]:
    """Name the module whose work is counted inside, if counting fails."""
    try:
        yield
    except NeuronError:
        raise
    except Exception as error:
        message = f"The work of module {path!r} cannot be counted ({type(error).__name__}: {error})."
        hint = "Report this as an issue, with the model's configuration."
        raise ModelError(message, hint=hint, module=path) from error


def role_of_step(step: Step) -> Role | None:
    """Return the role of a layer's matmul; None for others, and outside of layers."""
    if step.matmul is None or not layer_of(step.module_path):
        return None
    return "router" if step.matmul.columns == 1 else role_of(step.module_path)


def layer_of(path: str) -> str:
    """Return the layer of a module path: everything up to its first number; empty outside of layers."""
    parts = path.split(".")
    index = next((index for index, part in enumerate(parts) if part.isdigit()), None)
    return "" if index is None else ".".join(parts[: index + 1])


def parent_of(path: str) -> str:
    """Return the module that holds a module."""
    return path.rpartition(".")[0]


def is_inside(path: str, module: str) -> bool:
    """Return whether a path is that of a module or of a part of it."""
    return f"{path}.".startswith(f"{module}.")


def norm_paths(steps: Iterable[Step]) -> set[str]:
    """Return the modules that write a norm out, and do nothing else."""
    steps = list(steps)
    mixers = {step.module_path for step in steps if step.attends or step.scans}
    return {step.module_path for step in steps if step.name == "aten.rsqrt"} - mixers


def with_work(step: Step, **changes: float) -> Step:
    """Return a step with other counts."""
    return dataclasses.replace(step, work=dataclasses.replace(step.work, **changes))  # type: ignore[arg-type]
