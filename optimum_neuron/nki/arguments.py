"""Arrays of a call as tensors in HBM, and tensors of a kernel as arrays.

NumPy arrays and torch tensors share their memory with the kernel where the dtype allows it; what a kernel writes to the
others is copied back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..errors import KernelError
from .core import Rule, current, refuse, require
from .dtypes import FORMATS, dtype_name
from .memory import Buffer, Storage
from .tensor import NkiTensor


def tensors_in(value: object) -> list[torch.Tensor | np.ndarray]:
    """Return the arrays among arguments, in order, also those in lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


class Arguments:
    """The arrays of one call, as tensors in HBM."""

    def __init__(self, precise: bool) -> None:
        self.precise = precise
        self.is_torch = False
        self.placed: list[tuple[NkiTensor, torch.Tensor, int]] = []
        self._given: dict[int, Any] = {}

    def place(self, value: object, name: str) -> Any:
        """Return an array as a tensor in HBM that shares its memory, and anything else as it is."""
        if isinstance(value, list | tuple) and any(isinstance(item, np.ndarray | torch.Tensor) for item in value):
            return type(value)(self.place(item, f"{name}_{number}") for number, item in enumerate(value))
        if not isinstance(value, np.ndarray | torch.Tensor):
            return value
        self.is_torch |= isinstance(value, torch.Tensor)
        dtype = dtype_name(value.dtype)
        host = value.detach() if isinstance(value, torch.Tensor) else as_torch(value, dtype)
        row, base = FORMATS[dtype], host
        if not self.precise and row.is_float:
            base = host.float()
        base = base.contiguous()
        storage = Storage(base, Buffer.hbm, row, tuple(host.shape), name, "", self.precise)
        tensor = NkiTensor(storage)
        self.placed.append((tensor, host, base._version))
        self._given[storage.number] = value
        return tensor

    @property
    def changed(self) -> bool:
        """Whether the kernel wrote an input."""
        return any(tensor.storage.base._version != version for tensor, _, version in self.placed)

    def write_back(self) -> None:
        """Copy what the kernel wrote to inputs that could not share their memory."""
        for tensor, host, version in self.placed:
            base, given = tensor.storage.base, self._given[tensor.storage.number]
            if base._version == version:
                continue
            if base.data_ptr() != host.data_ptr():
                host.copy_(base)
            if isinstance(given, np.ndarray) and given.flags.writeable and host.data_ptr() != given.ctypes.data:
                given[...] = _as_numpy(host, tensor.dtype)

    def results(self, value: object) -> Any:
        """Return tensors of the kernel as arrays."""
        if isinstance(value, list | tuple):
            return tuple(self.results(item) for item in value)
        if isinstance(value, dict):
            return {key: self.results(item) for key, item in value.items()}
        if not isinstance(value, NkiTensor):
            return value
        require(not value.buffer.is_on_chip, Rule.RESULT_ON_CHIP, of=value, line=value.storage.line)
        exchanged_in = current().exchanged.get(value.storage.number)
        if exchanged_in is not None:
            refuse(Rule.EXCHANGED, tensor=value.name, line=exchanged_in)
        for tensor, host, _ in self.placed:
            if tensor.storage is value.storage and value.shape == tensor.shape:
                given = self._given[value.storage.number]
                if isinstance(given, torch.Tensor):
                    return given
                return host if self.is_torch else _as_numpy(host, value.dtype)
        data, number = value.read(), value.storage.number
        if number in self._given or not value.storage.covers(data):
            data = data.clone()
        self._given.setdefault(number, None)  # a second result of the same memory is a copy
        return data if self.is_torch else _as_numpy(data, value.dtype)


def as_torch(array: np.ndarray, dtype: str) -> torch.Tensor:
    """Return NumPy's memory as a tensor of torch, also for dtypes that NumPy takes from ml_dtypes."""
    if not array.flags.writeable or min(array.strides, default=0) < 0:
        array = array.copy()
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder())
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    if not FORMATS[dtype].is_native:
        return torch.from_numpy(array.astype(np.float32)).to(FORMATS[dtype].storage)
    bits = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
    return torch.from_numpy(bits).view(getattr(torch, dtype))


def _as_numpy(data: torch.Tensor, dtype: str) -> np.ndarray:
    """Return a tensor of torch as an array of the same dtype; a wider one for dtypes that only ml_dtypes has."""
    name = str(data.dtype).removeprefix("torch.")
    is_wider = data.dtype.itemsize > FORMATS[dtype].size_bytes and data.dtype == FORMATS[dtype].storage
    if hasattr(np, name) and not is_wider:
        return data.numpy()
    try:
        import ml_dtypes
    except ImportError as error:
        if is_wider:
            return data.numpy()
        message = f"NumPy has no {dtype}, which the kernel returned."
        raise KernelError(message, hint="pip install ml_dtypes, or pass torch tensors.", rule="dtype") from error
    if is_wider:
        return data.float().numpy().astype(getattr(ml_dtypes, dtype))
    bits = data.view(torch.int16 if data.dtype.itemsize == 2 else torch.uint8).numpy()
    return bits.view(getattr(ml_dtypes, name))
