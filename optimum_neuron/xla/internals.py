"""Functions of `torch_xla._XLAC` and `libneuronxla` that scripts call although they are not public."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from . import graphs
from .selection import device

SnapshotCallback = Callable[[str, int, int], str]
"""Of a graph's name, the index of its core, and the number of its run: "inputs", "outputs", both, or nothing."""


def _write_inputs(name: str, addressable_device_index: int, execution_count: int) -> str:
    """Libneuronxla's default."""
    return "inputs"


_ir_debug = False
_snapshot_callback: SnapshotCallback = _write_inputs


def register_hlo_snapshot_callback(callback: SnapshotCallback) -> SnapshotCallback:
    """Set the function that says which graphs are written with their data, and return the one before.

    It is asked where XLA_FLAGS has `--xla_dump_hlo_snapshots`. Graphs are not HLO here: a warning says that this
    variable has no effect.

    Args:
        callback: the function.
    """
    global _snapshot_callback
    before, _snapshot_callback = _snapshot_callback, callback
    return before


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
