"""New tensors in the memories of the core, and constants that the compiler would place in HBM."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .. import instructions as ins
from ..arguments import as_torch
from ..core import Core, Rule, current, kernel_line, refuse, require
from ..dtypes import FORMATS, Dtype, dtype_name
from ..memory import Address, Buffer, Storage
from ..tensor import NkiTensor

_NAMES = itertools.count()


def ndarray(
    shape: Sequence[int], dtype: Dtype, buffer: Buffer = Buffer.sbuf, name: str = "", address: object = None
) -> NkiTensor:
    """Make a tensor that nothing wrote; in SBUF unless another memory is named.

    Args:
        shape: sizes.
        dtype: the dtype.
        buffer: the memory.
        name: Name, for messages, schedules and traces.
        address: first partition and byte of a partition, for a tile that the kernel places itself.

    Raises:
        KernelError: the core has no such dtype, or the memory has no room for it.
    """
    core, place = current(), buffer
    sizes, kind = tuple(map(int, shape)), dtype_name(dtype)
    layout = core.legal.get((sizes, kind, place))
    if layout is None:
        _check_dtype(core, kind)
        if place.is_on_chip:
            _check_on_chip(core, place, sizes, kind)
        layout = core.legal[sizes, kind, place] = object()
    if place is Buffer.shared_hbm and core.grid.shape:
        return _shared(core, sizes, kind, name)
    label = name or f"{place.value}_{next(_NAMES)}"
    tensor = NkiTensor(_allocated(core, sizes, kind, place, label, address))
    tensor.layout = layout
    return tensor


def _checked_address(core: Core, storage: Storage, address: Any) -> Address:
    """Return the place of a tile that the kernel placed; it must lie in its memory."""
    place = address if isinstance(address, Address) else Address(*map(int, address))
    room = core.partition_bytes(storage.buffer) if storage.buffer.is_on_chip else 0
    last = place.byte + storage.bytes_per_partition
    fits = 0 <= place.byte <= last <= room and 0 <= place.partition <= 128 - storage.shape[0]
    require(fits, Rule.ADDRESS, storage=storage, place=place, last=last, room=room)
    return place


def _shared(core: Core, sizes: tuple[int, ...], kind: str, name: str) -> NkiTensor:
    """Return the tensor that all cores of a launch share: by its name, or as the n-th that each creates."""
    key = name or core.num_shared
    core.num_shared += not name
    storage = core.grid.shared.get(key)
    if storage is None:
        label = name or f"shared_hbm_{key}"
        storage = core.grid.shared[key] = _allocated(core, sizes, kind, Buffer.shared_hbm, label)
    return NkiTensor(storage)


def _allocated(
    core: Core, sizes: tuple[int, ...], kind: str, place: Buffer, label: str, address: object = None
) -> Storage:
    options: dict[str, Any] = {"name": label, "line": kernel_line(), "precise": core.precise}
    storage = Storage.empty(sizes, kind, place, is_traced=core.tape is not None, **options)
    if address is not None:
        storage.address = _checked_address(core, storage, address)
    if core.tape is not None:
        core.tape.allocate(storage)
    return storage


def _check_dtype(core: Core, kind: str) -> None:
    packed = kind.endswith("_x4")
    if kind in core.spec.dtypes or (packed and core.generation >= 4):
        return
    choices = [name for name in FORMATS if name in core.spec.dtypes]
    refuse(Rule.CORE_DTYPE, core=core, dtype=kind, choices=choices)


def _check_on_chip(core: Core, place: Buffer, sizes: tuple[int, ...], kind: str) -> None:
    require(len(sizes) >= 2, Rule.TILE_DIMS, shape=sizes, place=place)
    require(sizes[0] <= 128, Rule.TILE_PARTITIONS, sizes=sizes, place=place, partitions=sizes[0])
    needed, room = math.prod(sizes[1:]) * FORMATS[kind].size_bytes, core.partition_bytes(place)
    require(needed <= room, Rule.CAPACITY, sizes=sizes, kind=kind, needed=needed, place=place, core=core, capacity=room)


def _filled(value: float, shape: Sequence[int], dtype: Dtype, buffer: Buffer, name: str) -> NkiTensor:
    result = ndarray(shape, dtype, buffer, name)
    fill(result, value)
    return result


def fill(tensor: NkiTensor, value: float) -> None:
    """Write one number to a new tensor: an instruction on the chip, a constant of the executable in HBM."""
    if tensor.buffer.is_hbm:
        tensor.write_constant(torch.full(tensor.shape, value))
    else:
        ins.memset(tensor, value)


def zeros(shape: Sequence[int], dtype: Dtype, buffer: Buffer = Buffer.sbuf, name: str = "") -> NkiTensor:
    """Make a tensor of zeros."""
    return _filled(0, shape, dtype, buffer, name)


def ones(shape: Sequence[int], dtype: Dtype, buffer: Buffer = Buffer.sbuf, name: str = "") -> NkiTensor:
    """Make a tensor of ones."""
    return _filled(1, shape, dtype, buffer, name)


def full(
    shape: Sequence[int], fill_value: float, dtype: Dtype, buffer: Buffer = Buffer.sbuf, name: str = ""
) -> NkiTensor:
    """Make a tensor of one number."""
    return _filled(fill_value, shape, dtype, buffer, name)


def zeros_like(x: NkiTensor, dtype: Dtype | None = None, buffer: Buffer | None = None, name: str = "") -> NkiTensor:
    """Make zeros of the shape and dtype of another tensor."""
    return _filled(0, x.shape, x.dtype if dtype is None else dtype, buffer or x.buffer, name)


def empty_like(x: NkiTensor, dtype: Dtype | None = None, buffer: Buffer | None = None, name: str = "") -> NkiTensor:
    """Make a tensor of the shape and dtype of another one, which nothing wrote."""
    return ndarray(x.shape, x.dtype if dtype is None else dtype, buffer or x.buffer, name)


def copy(x: NkiTensor, dtype: Dtype | None = None) -> NkiTensor:
    """Copy a tile to SBUF."""
    result = ndarray(x.shape, x.dtype if dtype is None else dtype)
    ins.tensor_copy(result, x)
    return result


def shared_constant(constant: object) -> NkiTensor:
    """Make a tensor in HBM, which the cores of a launch share, with the values of an array or of a .npy file."""
    array = np.load(constant, allow_pickle=False) if isinstance(constant, str | os.PathLike) else constant
    dtype = dtype_name(array.dtype) if hasattr(array, "dtype") else None
    values = as_torch(array, dtype) if dtype and isinstance(array, np.ndarray) else torch.as_tensor(array)
    result = ndarray(values.shape, dtype or str(values.dtype), Buffer.shared_hbm)
    result.write_constant(values)
    return result


def shared_identity_matrix(n: int, dtype: Dtype = "uint8", dst: NkiTensor | None = None) -> NkiTensor:
    """Make an identity matrix in SBUF, or write it to dst."""
    result = ndarray((n, n), dtype) if dst is None else dst
    result.write_constant(torch.eye(n))
    return result


__all__ = ["copy", "empty_like", "full", "ndarray", "ones", "shared_constant", "shared_identity_matrix", "zeros"]
__all__ += ["zeros_like"]
