"""The facts of a view of memory, and its elements as instructions read and write them.

`read` and `write` know the dtype and what was written. How views are made from others is in `tensor.py`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import torch

from .core import Access, Rule, Unwritten, current, kernel_line, refuse, require, running
from .dtypes import DtypeName, Format, bits_of, rounded
from .memory import Buffer, Storage


def offsets_of(pattern: Iterable[Sequence[int]], device: torch.device | None = None) -> torch.Tensor:
    """Return the place of each element of an access pattern, pairs [step, count], counted from the first one."""
    places = torch.zeros((), dtype=torch.int64, device=device)
    for step, count in pattern:
        places = places.unsqueeze(-1) + torch.arange(count, device=device) * step
    return places


class UninitializedReadWarning(UserWarning):
    """A kernel read memory that nothing wrote."""


class Elements:
    """A part of a tensor in one of the memories."""

    __slots__ = ("data", "layout", "storage")
    layout: object | None
    """What stands for all that rules ask of the view, on a core that checked it."""

    def __init__(self, storage: Storage, data: torch.Tensor | None = None) -> None:
        self.storage = storage
        self.data = storage.whole() if data is None else data
        self.layout = None

    # ------------------------------------------------------------------ facts
    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes; dimension 0 is the partitions of an on-chip tensor."""
        return tuple(self.data.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Steps between elements, in elements."""
        return self.data.stride()

    @property
    def offset(self) -> int:
        """First element, counted from the start of the tensor."""
        return self.data.storage_offset() - self.storage.base.storage_offset()

    @property
    def dtype(self) -> DtypeName:
        """Name of the dtype."""
        return self.storage.format.name

    @property
    def name(self) -> str:
        """Name of the tensor."""
        return self.storage.name

    @property
    def buffer(self) -> Buffer:
        """Memory it is in."""
        return self.storage.buffer

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.data.dim()

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.data.numel()

    @property
    def num_partitions(self) -> int:
        """Partitions it covers."""
        return self.data.shape[0]

    @property
    def elements_per_partition(self) -> int:
        """Elements in each partition."""
        return math.prod(self.data.shape[1:])

    @property
    def extent(self) -> tuple[int, int]:
        """Partitions, and elements in each."""
        return self.data.shape[0], math.prod(self.data.shape[1:])

    def __repr__(self) -> str:
        return f"NkiTensor({self.name}, shape={self.shape}, dtype={self.dtype}, buffer={self.buffer.value})"

    def __bool__(self) -> bool:
        if running() and current().platform_rules:
            refuse(Rule.TENSOR_BRANCH)
        return True

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("an NkiTensor has no elements in Python: read it with instructions")

    def get_pattern(self) -> list[list[int]]:
        """Return the access pattern, as [stride, count] of each dimension."""
        return [[stride, count] for stride, count in zip(self.strides, self.shape, strict=True)]

    def is_contiguous(self) -> bool:
        """Return whether the elements lie one after the other."""
        return self.data.is_contiguous()

    def is_indirect(self) -> bool:
        """Return whether elements are chosen by indices in memory."""
        return False

    def access(self) -> Access:
        """Describe the view as data."""
        storage = self.storage
        return Access(
            storage=storage.number,
            name=storage.name,
            buffer=storage.buffer.value,
            dtype=self.dtype,
            offset=self.offset,
            shape=self.shape,
            strides=self.strides,
            row=storage.row,
            bytes_per_partition=storage.bytes_per_partition,
            created=storage.line,
            is_indirect=self.is_indirect(),
            address=None if storage.address is None else (storage.address.partition, storage.address.byte),
            rows=storage.shape[0] if storage.shape else 1,
        )

    # ------------------------------------------------------------------ elements
    def read(self) -> torch.Tensor:
        """Return the elements as the host stores them, without copying; note reads of what nothing wrote."""
        if self.storage.is_whole:
            return self.data
        mask = self.storage.mask_of(self.data)
        if mask is not None and current().warns and not bool(mask.all()):
            self._warn_unwritten(mask)
        return self.data

    def floats(self) -> torch.Tensor:
        """Return the elements as float32, which is what the engines compute with."""
        data = self.read()
        return data if data.dtype == torch.float32 else data.to(torch.float32)

    def integers(self) -> torch.Tensor:
        """Return the elements of an integer tensor as int64."""
        return self.read().to(torch.int64)

    def rows(self) -> torch.Tensor:
        """Return the elements as float32, one row for each partition."""
        data = self.floats()
        return data if data.dim() == 2 else data.reshape(data.shape[0], -1)

    def room(self, shape: Sequence[int]) -> torch.Tensor | None:
        """Return its memory in a shape, if a result may be computed there, so that `write` has nothing to copy.

        It is float32, whole, and so new that it holds no operand.
        """
        storage, data = self.storage, self.data
        if not storage.written.is_blank or data.dtype != torch.float32 or not storage.format.is_native:
            return None
        return data.view(shape) if storage.covers(data) and data.is_contiguous() and not self.is_indirect() else None

    def write(self, values: torch.Tensor) -> None:
        """Store values, rounded to the dtype; they have as many elements, in the same order."""
        storage, data = self.storage, self.data
        assert not data.is_meta, f"{self.name} is written while it is traced"
        if values.shape != data.shape:
            values = values.reshape(data.shape)
        if 0 in data.stride():  # one element is written many times: the last write stays
            last = tuple(slice(-1, None) if step == 0 else slice(None) for step in data.stride())
            data, values = data[last], values[last]
        if not storage.covers(data):
            storage.settle()
        if storage.format.is_native and storage.format.is_float:
            data.copy_(values)
        else:
            data.copy_(rounded(values, storage.format, precise=storage.precise))
        storage.mark_written(data)

    def write_constant(self, values: torch.Tensor) -> None:
        """Store values that are known before the kernel runs; a core that traces only notes them."""
        tape = current().tape
        if tape is None:
            self.write(values)
        else:
            tape.write(self, values)

    def write_read(self, source: Elements, values: torch.Tensor, order: Sequence[int] = ()) -> None:
        """Store what was read of a source, permuted; elements whose source is skipped stay as they are."""
        where = source.inside()
        values = values.permute(order) if order else values
        if where is None:
            self.write(values)
        else:
            where = where.permute(order) if order else where
            self.write_where(where.reshape(self.shape), values.reshape(self.shape))

    def copy_from(self, other: Elements) -> None:
        """Store the elements of another view of as many, by no instruction; a core that traces only notes it."""
        tape = current().tape
        if tape is None:
            self.write(other.read())
        else:
            tape.copy(self, other)

    def write_where(self, chosen: torch.Tensor, values: torch.Tensor) -> None:
        """Store the values where `chosen` holds, and leave the other elements and what is known of them."""
        storage = self.storage
        storage.settle()
        stored = rounded(values[chosen], storage.format, precise=storage.precise)
        bits_of(self.data)[chosen] = bits_of(stored)
        mask = storage.mask_of(self.data)
        if mask is not None:
            mask |= chosen.unsqueeze(-1)

    def reinterpreted(self, row: Format) -> Storage:
        """Return the whole memory as another format."""
        own = self.storage.format
        packed = own.storage.itemsize != own.size_bytes or row.storage.itemsize != row.size_bytes
        require(not packed and self.storage.precise, Rule.HOST_DTYPE, own=own, row=row)
        return self.storage.viewed_as(row)

    def in_elements(self, count: int, row: Format) -> int:
        """Return a number of elements as one of elements of another format."""
        size_bytes = count * self.storage.format.size_bytes
        require(not size_bytes % row.size_bytes, Rule.ELEMENT_START, of=self, size_bytes=size_bytes, row=row)
        return size_bytes // row.size_bytes

    def with_skip(self, skip: bool) -> Self:
        """Return the view with a rule for indices outside of it; only indirect views have such."""
        return self

    def inside(self) -> torch.Tensor | None:
        """Return which elements are inside of the tensor; None where all have to be."""
        return None

    def chosen_by(self) -> tuple[Elements, ...]:
        """Return the indices in memory that choose elements, which an instruction reads too."""
        return ()

    def for_engine(self, engine: str) -> None:
        """Prepare for the engine that accesses the view; only columns chosen by offsets depend on it."""

    def _warn_unwritten(self, mask: torch.Tensor) -> None:
        missing = int((~mask).any(-1).sum())
        current().unwritten.append(Unwritten(kernel_line(), self.name, missing))
        if current().strict:
            refuse(Rule.UNWRITTEN, of=self, missing=missing)
        text = f"{Rule.UNWRITTEN.message} {Rule.UNWRITTEN.remedy}".format(of=self, missing=missing)
        warnings.warn(f"{kernel_line()}: {text}", UninitializedReadWarning, stacklevel=2)
