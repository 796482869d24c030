"""Functions of `torch_xla._XLAC` that scripts and libraries call although they are not public."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import graphs
from .selection import device

_ir_debug = False


def sync_multi(
    tensors: Sequence[torch.Tensor], devices: Sequence[str] = (), wait: bool = True, sync_xla_data: bool = True
) -> None:
    """End the graph, after which tensors have their values.

    Args:
        tensors: tensors of "xla"; all others of the graph get their values too.
        devices: where; empty: their devices.
        wait: as of `sync`.
        sync_xla_data: whether tensors keep no more than their values.
    """
    graphs.sync(wait=wait, reset_scope=sync_xla_data)


def step_marker(device: str, devices: Sequence[str] = (), wait: bool = False, reset_scope: bool = True) -> None:
    """End the graph of a step."""
    graphs.sync(wait=wait, reset_scope=reset_scope)


def unlazy(tensors: Sequence[torch.Tensor]) -> None:
    """End the graph, after which tensors have their values."""
    graphs.sync(wait=True)


def default_device() -> str:
    """Return the name of the current device."""
    return str(device())


def tensor_id(tensor: torch.Tensor) -> int:
    """Return a number that views of the same memory, and nothing else that is alive, have in common."""
    return tensor.untyped_storage().data_ptr()


def cpu_tensors(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors on the CPU."""
    return [tensor.cpu() for tensor in tensors]


def tensors_from_aten(
    tensors: Sequence[torch.Tensor], devices: Sequence[str], shardings: object = None
) -> list[torch.Tensor]:
    """Return tensors on the devices that are given for each."""
    return [tensor.to(place) for tensor, place in zip(tensors, devices, strict=True)]


def ir_debug() -> bool:
    """Return whether `set_ir_debug` was called."""
    return _ir_debug


def set_ir_debug(enabled: bool) -> None:
    """Let the text of a graph name the lines of the script."""
    global _ir_debug
    _ir_debug = enabled


def warm_up_cache(*_: object) -> None:
    """Return at once: graphs are found in the cache when they are needed."""
