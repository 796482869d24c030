"""New tensors of the older API, with blocks and allocations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..core import current
from ..dtypes import Dtype, dtype_name
from ..language import fill
from ..memory import Buffer
from .blocks import Allocation, BlockedTensor, blocked, blocks_of
from .published import LANGUAGE, listed, published
from .tiles import OlderTensor, nl, older

_HINTS = {"lazy_initialization"}
"""Options for the compiler's scheduling, which change no result."""


@published(LANGUAGE, ignored=_HINTS)
def ndarray(
    shape: Sequence[int], dtype: Dtype, *, buffer: object = None, name: str = ""
) -> OlderTensor | BlockedTensor:
    """Make a tensor that nothing wrote; in SBUF unless another memory is named."""
    allocation = _allocation(buffer)
    blocks, sizes = blocks_of(shape, allocation.buffer)
    kind = dtype_name(dtype)

    def make(block: tuple[int, ...]) -> OlderTensor:
        size_bytes = kind.itemsize * int(torch.Size(sizes[1:]).numel())
        address = allocation.address(block, sizes[0], size_bytes) if allocation.where else None
        label = f"{name or allocation.buffer.value}[{', '.join(map(str, block))}]" if block else name
        return older(nl.ndarray(sizes, kind, allocation.buffer, label, address))

    return blocked(blocks, make)


def _allocation(buffer: Any) -> Allocation:
    if buffer is None:
        return Allocation(Buffer.sbuf)
    found = buffer if isinstance(buffer, Allocation | Buffer) else buffer.auto_alloc()
    found = Allocation(found) if isinstance(found, Buffer) else found
    return Allocation(found.buffer) if current().ignores_addresses else found


@published(LANGUAGE, ignored=_HINTS)
def full(
    shape: Sequence[int], fill_value: float, dtype: Dtype, *, buffer: object = None, name: str = ""
) -> OlderTensor | BlockedTensor:
    """Make a tensor of one number."""
    result = ndarray(shape, dtype, buffer=buffer, name=name)
    for tile in result.tiles() if isinstance(result, BlockedTensor) else (result,):
        fill(tile, fill_value)
    return result


def _of_number(function: str, number: float) -> None:
    def make(shape: Sequence[int], dtype: Dtype, *, buffer: object = None, name: str = "") -> Any:
        return full(shape, number, dtype, buffer=buffer, name=name)

    make.__doc__ = f"Make a tensor of {function}."
    published(LANGUAGE, function, ignored=_HINTS)(make)


_of_number("zeros", 0)
_of_number("ones", 1)


@published(LANGUAGE, ignored=_HINTS)
def zeros_like(
    a: Any, dtype: Dtype | None = None, *, buffer: Any = None, name: str = ""
) -> OlderTensor | BlockedTensor:
    """Make zeros of the shape and dtype of another tensor."""
    return full(a.shape, 0, a.dtype if dtype is None else dtype, buffer=buffer, name=name)


@published(LANGUAGE, ignored=_HINTS)
def empty_like(
    a: Any, dtype: Dtype | None = None, *, buffer: Any = None, name: str = ""
) -> OlderTensor | BlockedTensor:
    """Make a tensor of the shape and dtype of another one, which nothing wrote."""
    return ndarray(a.shape, a.dtype if dtype is None else dtype, buffer=buffer, name=name)


@published(LANGUAGE)
def shared_constant(constant: object, dtype: Dtype | None = None) -> OlderTensor:
    """Make a tensor in HBM with the values of an array."""
    values = torch.as_tensor(constant)
    result = older(nl.ndarray(values.shape, dtype_name(values.dtype if dtype is None else dtype), Buffer.hbm))
    result.write_constant(values)
    return result


@published(LANGUAGE)
def shared_identity_matrix(n: int, dtype: Dtype = "uint8") -> OlderTensor:
    """Make an identity matrix in HBM."""
    return older(nl.shared_identity_matrix(n, dtype, nl.ndarray((n, n), dtype, Buffer.hbm)))


@published(LANGUAGE)
def rand(shape: Sequence[int], dtype: Dtype = "float32") -> OlderTensor:
    """Make a tile of uniform numbers from 0 to 1."""
    return older(nl.rand(tuple(int(size) for size in shape), dtype))


@listed(LANGUAGE)
def static_cast(input_data: object, dtype: Dtype) -> Any:
    """Return an array of NumPy or of torch in a dtype of the core; in a kernel, a copy of a tile."""
    if hasattr(input_data, "storage") and hasattr(input_data, "buffer"):
        return older(nl.copy(input_data, dtype))
    name = dtype_name(dtype)
    if isinstance(input_data, torch.Tensor):
        return input_data.to(getattr(torch, name))
    import numpy as np

    return np.asarray(input_data).astype(name)


class _Limits:
    """Largest and smallest number of a floating-point dtype, as `nl.fp32`."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.min, self.max = torch.finfo(dtype).min, torch.finfo(dtype).max


fp32, bfp16 = _Limits(torch.float32), _Limits(torch.bfloat16)


@listed(LANGUAGE)
def finfo(dtype: Dtype) -> Any:
    """Return limits of a floating-point dtype."""
    return torch.finfo(getattr(torch, dtype_name(dtype)))
