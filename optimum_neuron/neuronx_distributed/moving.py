"""Models between devices: what parameters say about ranks, and which of them are one, is kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .. import xla
from ..errors import ValidationError
from .parallel_state import cpu_mode


def get_device() -> torch.device:
    """Return the device of training: "xla", or the CPU with NXD_CPU_MODE=1."""
    if cpu_mode():
        return torch.device("cpu")
    xla.enable()
    return torch.device("xla")


def mark_step() -> None:
    """End a graph of the device "xla"; on the CPU there is none."""
    if not cpu_mode():
        xla.sync()


def move_model_to_device(model: nn.Module, device: torch.device | str) -> nn.Module:
    """Move a model.

    Args:
        model: the model.
        device: the device.
    """
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    attributes: dict[int, dict[str, Any]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                places.setdefault(id(parameter), []).append((module, name))
                attributes[id(parameter)] = dict(vars(parameter))
    model.to(device)
    for key, users in places.items():
        first = getattr(*users[0])
        vars(first).update(attributes[key])
        for module, name in users[1:]:
            setattr(module, name, first)
    return model


def to_cpu(value: Any) -> Any:
    """The same nesting with copies of its tensors on the CPU, without gradients."""
    if torch.is_tensor(value):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: to_cpu(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(to_cpu(item) for item in value)
    return value


def cast_all(state: Any, from_dtype: torch.dtype = torch.float32, to_dtype: torch.dtype = torch.bfloat16) -> Any:
    """Return the same nesting with the tensors of a dtype in another.

    Args:
        state: the nesting.
        from_dtype: dtype of the tensors to change.
        to_dtype: their new dtype.
    """
    if torch.is_tensor(state):
        return state.to(to_dtype) if state.dtype == from_dtype else state
    if isinstance(state, dict):
        return {key: cast_all(item, from_dtype, to_dtype) for key, item in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(cast_all(item, from_dtype, to_dtype) for item in state)
    return state


def _autocast_dtype() -> torch.dtype | None:
    """The dtype of the autocast that is active; None where none is."""
    kinds = [kind for kind in ("cuda", "xla", "cpu") if torch.is_autocast_enabled(kind)]
    return torch.get_autocast_dtype(kinds[0]) if kinds else None


def cast_if_autocast_enabled(*args: Any) -> Any:
    """Return the arguments, with tensors of float32 in the dtype of `torch.autocast` where one is active."""
    dtype = _autocast_dtype()
    return args if dtype is None else cast_all(args, to_dtype=dtype)


def verify_casted_dtype(value: Any) -> None:
    """Require that tensors have the dtype of the `torch.autocast` that is active.

    Args:
        value: a tensor, or tensors nested in tuples, lists, and dicts.

    Raises:
        ValidationError: a tensor has another dtype.
    """
    dtype = _autocast_dtype()
    if dtype is None:
        return
    if torch.is_tensor(value) and value.dtype != dtype:
        message = f"Datatype of tensor is expected to be {dtype}, got {value.dtype} instead."
        raise ValidationError(message, hint="Call cast_if_autocast_enabled.", dtype=str(value.dtype))
    if isinstance(value, (dict, list, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            verify_casted_dtype(one)
