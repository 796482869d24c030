"""Tensors of the older API: indexed by index tiles, assigned to, and computed with Python's operators.

`tensor[ip, ix]` is a name of elements until a function uses it, because the function has the mask. A matmul is a
product until something uses it: `psum += product` accumulates in PSUM.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from .. import instructions as ins, language
from ..core import refuse
from ..memory import Buffer
from ..operators import OPERATORS, Operator
from ..tensor import NkiTensor
from .indexing import extents, pattern

nl: Any = language
"""Its names are made at run time."""


class _Arithmetic:
    """Operators of Python between tiles and numbers."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return compute(OPERATORS["add"], self, other)

    def __sub__(self, other: Any) -> OlderTensor:
        return compute(OPERATORS["subtract"], self, other)

    def __mul__(self, other: Any) -> OlderTensor:
        return compute(OPERATORS["multiply"], self, other)

    def __truediv__(self, other: Any) -> OlderTensor:
        return compute(OPERATORS["divide"], self, other)

    def __radd__(self, other: Any) -> OlderTensor:
        return compute(OPERATORS["add"], other, self)

    def __rsub__(self, other: Any) -> OlderTensor:
        return compute(OPERATORS["subtract"], other, self)

    def __rmul__(self, other: Any) -> OlderTensor:
        return compute(OPERATORS["multiply"], other, self)

    def __neg__(self) -> OlderTensor:
        return compute(OPERATORS["negative"], self)


class OlderTensor(_Arithmetic, NkiTensor):
    """A tensor in one of the memories."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(item, np.ndarray) for item in keys):
            return IndexedTile(self, _as_arrays(self, keys))
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        target = self[key]
        if isinstance(value, IndexedTile) and value.was_added_to:
            return
        if isinstance(value, OlderTensor) and value.is_same_view(self):
            return
        copy_to(resolved(target), resolved(value))

    def __iadd__(self, other: Any) -> Self:
        add_to(self, other)
        return self

    def broadcast_to(self, shape: tuple[int, ...]) -> OlderTensor:
        """Repeat dimensions of size 1, without copying."""
        return older(nl.broadcast_to(self, shape))

    def is_same_view(self, other: OlderTensor) -> bool:
        """Return whether another tensor is the same part of the same memory."""
        mine, theirs = ((one.storage, one.offset, one.shape, one.strides) for one in (self, other))
        return mine == theirs

    def _narrowed(self, sizes: tuple[int, ...], steps: tuple[int, ...], first: int) -> OlderTensor:
        return OlderTensor(self.storage, self.data.as_strided(sizes, steps, self.data.storage_offset() + first))


def _as_arrays(tensor: OlderTensor, keys: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
    if len(keys) != tensor.ndim or any(not isinstance(item, int | np.integer | np.ndarray) for item in keys):
        refuse(
            f"{tensor.name} of shape {tensor.shape} is indexed by index tiles in some dimensions only.",
            hint="Give an index tile or a number for each dimension.",
            rule="rank",
            tensor=tensor.name,
        )
    return tuple(np.asarray(item) for item in keys)


@dataclasses.dataclass
class IndexedTile(_Arithmetic):
    """Elements of a tensor that index tiles name."""

    tensor: OlderTensor
    """The tensor."""
    indices: tuple[np.ndarray, ...]
    """One index tile for each of its dimensions."""
    was_added_to: bool = False
    """Whether `+=` was here, so that the assignment that Python makes after it has nothing to do."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes without a mask."""
        return np.broadcast_shapes(*(index.shape for index in self.indices))

    @property
    def dtype(self) -> str:
        """Dtype of the elements."""
        return self.tensor.dtype

    def __iadd__(self, other: Any) -> Self:
        add_to(self.view(None), other)
        self.was_added_to = True
        return self

    def view(self, mask: Any) -> OlderTensor:
        """Return the elements that a mask leaves, as a view.

        Raises:
            KernelError: they leave the tensor.
        """
        sizes = extents(mask, self.shape)
        if 0 in sizes:
            return self.tensor._narrowed(sizes, (0,) * len(sizes), 0)
        block = tuple(slice(size) for size in sizes)
        for dim, (index, length) in enumerate(zip(self.indices, self.tensor.shape, strict=True)):
            used = np.broadcast_to(index, self.shape)[block]
            if used.min() < 0 or used.max() >= length:
                refuse(
                    f"Indices {used.min()} to {used.max()} leave dimension {dim} of {self.tensor.name}, which has "
                    f"{length} elements.",
                    hint="Pass a mask, such as mask=(i_p < size).",
                    rule="bounds",
                    tensor=self.tensor.name,
                    dim=dim,
                    size=length,
                )
        first, steps = pattern(self.indices, self.tensor.strides, sizes)
        return self.tensor._narrowed(sizes, steps, first)


@dataclasses.dataclass(frozen=True)
class Product(_Arithmetic):
    """A matmul that nothing used yet."""

    shape: tuple[int, ...]
    """Sizes of its result."""
    run: Callable[[NkiTensor, bool], None]
    """Writes it to a tile in PSUM, or adds it."""
    dtype: str = "float32"
    """Dtype of the sum."""

    def view(self, mask: Any) -> OlderTensor:
        """Write it to a new tile in PSUM."""
        result = older(nl.ndarray(self.shape, self.dtype, buffer=Buffer.psum))
        self.run(result, False)
        return masked(result, mask)


def older(tensor: NkiTensor) -> OlderTensor:
    """Return a tensor as one of the older API."""
    return OlderTensor(tensor.storage, tensor.data)


def masked(tensor: OlderTensor, mask: Any) -> OlderTensor:
    """Return what a mask leaves of a tensor."""
    return tensor if mask is None else tensor._narrowed(extents(mask, tensor.shape), tensor.strides, 0)


def resolved(value: Any, mask: Any = None) -> Any:
    """Return a tile as a view of what a mask leaves; a number as it is."""
    if isinstance(value, IndexedTile | Product):
        return value.view(mask)
    if isinstance(value, OlderTensor):
        return masked(value, mask) if value.ndim else value
    return value.item() if isinstance(value, np.generic) else value


def fresh(shape: tuple[int, ...], dtype: Any, buffer: Buffer = Buffer.sbuf) -> OlderTensor:
    """Return a new tile whose elements are undefined where a mask leaves them out, which is no error."""
    tensor = older(nl.ndarray(shape, dtype, buffer=buffer))
    tensor.storage.mark_written(tensor.data)
    return tensor


def copy_to(dst: NkiTensor, value: Any) -> None:
    """Copy a tile or a number, with the instruction that reaches both memories."""
    if not isinstance(value, NkiTensor):
        ins.memset(dst, value)
    elif dst.buffer.is_hbm or value.buffer.is_hbm:
        ins.dma_copy(dst, value)
    else:
        ins.tensor_copy(dst, value)


def add_to(dst: OlderTensor, value: Any) -> None:
    """Add a product in PSUM, and anything else with the vector engine."""
    if isinstance(value, Product) and dst.buffer is Buffer.psum:
        value.run(dst, True)
        return
    other = resolved(value)
    if isinstance(other, NkiTensor):
        if dst.buffer is other.buffer is Buffer.psum:
            other = nl.copy(other)
        ins.tensor_tensor(dst, dst, other, OPERATORS["add"])
    else:
        ins.tensor_scalar(dst, dst, OPERATORS["add"], other)


def compute(operator: Operator, *operands: Any, dtype: Any = None, mask: Any = None) -> OlderTensor:
    """Compute an operator of tiles and numbers to a new tile; elements that a mask leaves out are undefined."""
    tiles = [resolved(operand) for operand in operands]
    result = older(operator(*tiles, **({} if dtype is None else {"dtype": dtype})))
    extents(mask, result.shape)
    return result
