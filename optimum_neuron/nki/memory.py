"""The memories of a core: HBM outside of it, SBUF and PSUM of 128 partitions on it.

A `Storage` is one tensor's place. It knows which of its elements were written, because the hardware does not clear
memory: an element that nothing wrote reads as NaN, and as 4 in an integer format, as in the vendor's simulator. Where a
tile lies in its memory is not modelled here.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math

import torch

from .dtypes import FORMATS, Format, storage_of

_NUMBERS = itertools.count()
POISON_INTEGER = 4
"""Content of integer memory that nothing wrote."""


class Buffer(enum.Enum):
    """A kind of memory, as `nl.sbuf`, `nl.psum` and the three names of HBM."""

    sbuf = "sbuf"
    psum = "psum"
    hbm = "hbm"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    __hash__ = object.__hash__

    def __init__(self, name: str) -> None:
        self.is_on_chip = name in ("sbuf", "psum")
        """Whether it has partitions."""
        self.is_hbm = not self.is_on_chip
        """Whether it is outside the core."""

    def __repr__(self) -> str:
        return f"nl.{self.value}"


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """Where a tile begins that a kernel placed by hand."""

    partition: int
    byte: int
    """First byte of each partition."""


@dataclasses.dataclass(eq=False, slots=True)
class Written:
    """Which parts of a memory were written."""

    flags: torch.Tensor | None = None
    """One for each part, in one dimension; None if all were."""
    unit: int = 1
    """Bytes of a part."""
    is_blank: bool = False
    """Whether nothing was written yet: the host's memory then has no content, and `Storage.settle` makes flags."""

    def split(self, size_bytes: int) -> None:
        """Note parts of at most as many bytes."""
        if self.flags is not None and size_bytes < self.unit:
            self.flags = self.flags.repeat_interleave(self.unit // size_bytes)
            self.unit = size_bytes


@dataclasses.dataclass(eq=False, slots=True)
class Storage:
    """One tensor in one memory."""

    base: torch.Tensor
    """All of its elements, in one dimension or as the user's array lies."""
    buffer: Buffer
    format: Format
    shape: tuple[int, ...]
    name: str
    """Name, for messages and streams."""
    line: str
    """Line of the kernel that created it, as `file.py:12`."""
    precise: bool = True
    written: Written = dataclasses.field(default_factory=lambda: Written())
    """Which of its bytes were written; all views of the memory share it."""
    number: int = dataclasses.field(default_factory=lambda: next(_NUMBERS))
    address: Address | None = None
    """Where it is; None if that is left to the compiler."""

    @classmethod
    def empty(
        cls,
        shape: tuple[int, ...],
        dtype: str,
        buffer: Buffer,
        *,
        name: str,
        line: str,
        precise: bool,
        is_traced: bool = False,
    ) -> Storage:
        """Make memory that nothing wrote; a tensor that is traced has sizes and no memory."""
        row = FORMATS[dtype]
        kind = storage_of(row, precise=precise)
        if is_traced:
            base = torch.empty(shape, dtype=kind, device="meta")
            return cls(base, buffer, row, shape, name, line, precise)
        base = torch.empty(shape, dtype=kind)
        return cls(base, buffer, row, shape, name, line, precise, Written(None, row.size_bytes, is_blank=True))

    def whole(self) -> torch.Tensor:
        """Return all elements, in its shape."""
        return self.base if self.base.shape == self.shape else self.base.reshape(self.shape)

    @property
    def is_whole(self) -> bool:
        """Whether all elements were written."""
        return self.written.flags is None and not self.written.is_blank

    def settle(self) -> None:
        """Give memory that nothing wrote its content, before a part of it is written or read."""
        if self.written.is_blank:
            poison = math.nan if self.format.is_float else POISON_INTEGER
            kind = torch.float32 if self.format.is_float else torch.int64
            self.base.copy_(torch.tensor(poison, dtype=kind).to(self.base.dtype))
            self.written.flags = torch.zeros(self.base.numel(), dtype=torch.bool)
            self.written.is_blank = False

    @property
    def row(self) -> int:
        """Elements for each index of the first dimension: in each partition of an on-chip tensor."""
        return math.prod(self.shape[1:])

    @property
    def bytes_per_partition(self) -> int:
        """Bytes in each partition of an on-chip tensor."""
        return self.row * self.format.size_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes on the core."""
        return math.prod(self.shape) * self.format.size_bytes

    def viewed_as(self, row: Format) -> Storage:
        """Return the same memory as elements of another format, which are as the host stores them."""
        self.settle()
        base = self.base.reshape(-1).view(row.storage)
        *rows, last = self.shape
        last = last * self.format.size_bytes // row.size_bytes
        shape = (*rows, last) if math.prod((*rows, last)) == base.numel() else (base.numel(),)
        self.written.split(row.size_bytes)
        return dataclasses.replace(self, base=base, format=row, shape=shape)

    def mask_of(self, view: torch.Tensor) -> torch.Tensor | None:
        """Return which elements of a view were written, with a last dimension of their parts; None if all were."""
        self.settle()
        flags = self.written.flags
        if flags is None:
            return None
        parts = self.format.size_bytes // self.written.unit
        offset = (view.storage_offset() - self.base.storage_offset()) * parts
        return flags.as_strided((*view.shape, parts), (*(step * parts for step in view.stride()), 1), offset)

    def covers(self, view: torch.Tensor) -> bool:
        """Return whether a view has all elements."""
        return view.numel() == self.base.numel() and 0 not in view.stride()

    def mark_written(self, view: torch.Tensor) -> None:
        """Note that all elements of a view were written."""
        if self.is_whole:
            return
        if self.covers(view):
            self.written.flags, self.written.is_blank = None, False
            return
        mask = self.mask_of(view)
        assert mask is not None
        mask.fill_(True)
