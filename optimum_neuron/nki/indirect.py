"""Views whose elements are chosen by indices in memory, for gathers and scatters.

Row p of an `IndirectTensor` begins at index p of a vector, times the step of the indexed dimension; the other
dimensions follow the access pattern. A `MovedTensor` begins where one index says. Columns of a `ColumnTensor` are
chosen by offsets of each group of partitions: column i by row `i % size` of the group's index, at `i // size`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Self

import torch

from .core import Rule, current, kernel_line, refuse, require
from .dtypes import bits_of, rounded
from .elements import Elements, offsets_of
from .tensor import CHOICES, NkiTensor, choice


class IndirectTensor(NkiTensor):
    """A gathered or scattered view."""

    __slots__ = ("addresses", "first", "indices", "num_rows", "row_step", "skip", "steps", "valid")
    addresses: torch.Tensor
    first: int
    indices: NkiTensor | None
    num_rows: int
    row_step: int
    steps: tuple[int, ...]
    valid: torch.Tensor
    skip: bool

    @classmethod
    def of(
        cls,
        tensor: NkiTensor,
        pattern: Sequence[Sequence[int]],
        offset: int,
        indices: NkiTensor,
        row_step: int,
        num_rows: int,
    ) -> IndirectTensor:
        """Return the view of a tensor by an access pattern whose first dimension goes by indices.

        Args:
            indices: one index for each count of the first dimension.
            row_step: elements from one index to the next.
        """
        base = tensor.storage.base
        counts, steps = [count for _, count in pattern], [step for step, _ in pattern]
        last = offset + sum(step * (count - 1) for step, count in zip(steps[1:], counts[1:], strict=True))
        tensor.require_inside(pattern, offset, last)
        # Row 0 in place of every row: views of the other dimensions are then views of this one.
        view = cls(tensor.storage, base.as_strided(counts, [0, *steps[1:]], base.storage_offset() + offset))
        rows = indices.integers().T.reshape(-1)[: counts[0]]
        places = offsets_of(pattern[1:], rows.device) + offset
        rows = rows.reshape(-1, *[1] * places.dim())
        view.addresses = rows * row_step + places
        view.valid = ((rows >= 0) & (rows < num_rows)).expand(counts)
        view.skip = False
        view.indices, view.first, view.row_step, view.num_rows = indices, offset, row_step, num_rows
        view.steps = tuple(steps)
        return view

    @classmethod
    def at(cls, tensor: NkiTensor, addresses: torch.Tensor, valid: torch.Tensor, *, skip: bool) -> IndirectTensor:
        """Return the view of elements by their numbers; `skip` leaves out those that are not valid."""
        view = cls(tensor.storage, tensor.storage.base.reshape(-1)[:1].expand(addresses.shape))
        view.addresses, view.valid, view.skip, view.indices = addresses, valid, skip, None
        view.steps = addresses.new_empty(addresses.shape, device="meta").stride()
        return view

    @property
    def strides(self) -> tuple[int, ...]:
        """Steps between elements as the pattern has them; between rows, indices decide."""
        return self.steps

    def is_indirect(self) -> bool:
        return True

    def chosen_by(self) -> tuple[Elements, ...]:
        return () if self.indices is None else (self.indices,)

    def with_skip(self, skip: bool) -> Self:
        self.skip = skip or (self.skip and self.indices is None)  # what a mask left out stays out
        return self

    def _view(self, data: torch.Tensor) -> NkiTensor:
        # Row 0 has the step 0: a view of another dimension without a step could be taken for one of the rows.
        is_plain = self.indices is not None and 0 not in self.steps[1:] and data.dim() > 0
        if not is_plain or data.shape[0] != self.shape[0] or (data.shape[0] > 1 and data.stride(0)):
            refuse_part(self)
        assert self.indices is not None
        pattern = [(self.steps[0], self.shape[0]), *zip(data.stride()[1:], data.shape[1:], strict=True)]
        first = data.storage_offset() - self.storage.base.storage_offset()
        return type(self).of(self, pattern, first, self.indices, self.row_step, self.num_rows)

    def _checked(self) -> torch.Tensor:
        total = self.storage.base.numel()
        bad = ~self.valid | (self.addresses < 0) | (self.addresses >= total)
        is_inside = self.skip or not bool(bad.any())
        require(is_inside, Rule.INDICES, of=self)
        return ~bad

    def inside(self) -> torch.Tensor | None:
        return self._checked() if self.skip else None

    def read(self) -> torch.Tensor:
        """Return the gathered elements; skipped ones are 0."""
        good = self._checked()
        self.storage.settle()
        flat = bits_of(self.storage.base.reshape(-1))
        return (flat[self.addresses.where(good, 0)] * good).view(self.storage.base.dtype)

    def write(self, values: torch.Tensor) -> None:
        self._scatter(values, self._checked())

    def write_where(self, chosen: torch.Tensor, values: torch.Tensor) -> None:
        self._scatter(values, self._checked() & chosen)

    def _scatter(self, values: torch.Tensor, good: torch.Tensor) -> None:
        storage = self.storage
        storage.settle()
        stored = rounded(values.reshape(self.addresses.shape)[good], storage.format, precise=storage.precise)
        bits_of(storage.base.view(-1))[self.addresses[good]] = bits_of(stored)
        mask = storage.mask_of(storage.base.view(-1))
        if mask is not None:
            mask[self.addresses[good]] = True


CHOICES["gathered"] = IndirectTensor.of


class MovedTensor(NkiTensor):
    """A view of a tensor without memory, whose begin is chosen by an index in memory when the kernel runs."""

    __slots__ = ("first", "index", "step")
    first: int
    index: NkiTensor
    step: int

    @classmethod
    def of(cls, plain: NkiTensor, index: NkiTensor, step: int) -> MovedTensor:
        """Return the view of a part that begins `index` steps later."""
        plain.require_plain()
        view = cls(plain.storage, plain.data)
        view.first, view.index, view.step = plain.offset, index, step
        return view

    def is_indirect(self) -> bool:
        return True

    def chosen_by(self) -> tuple[Elements, ...]:
        return (self.index,)

    def _view(self, data: torch.Tensor) -> NkiTensor:
        refuse_part(self)


class OutsideTensor(NkiTensor):
    """A view that ends behind its tensor. Public kernels make such views in loops, and do not use them."""

    __slots__ = ("bounds", "line")
    bounds: tuple[Sequence[Sequence[int]], int, int]
    """Its access pattern, and its first and last elements."""
    line: str
    """Line of the kernel that made it."""

    def is_indirect(self) -> bool:
        return True

    def require_plain(self) -> NoReturn:
        (pattern, first, last), name, size = self.bounds, self.name, self.storage.base.numel()
        refuse(Rule.PATTERN_BOUNDS, tensor=name, pattern=pattern, first=first, last=last, size=size, line=self.line)

    def for_engine(self, engine: str) -> None:
        self.require_plain()

    def read(self) -> torch.Tensor:
        self.require_plain()

    def _view(self, data: torch.Tensor) -> NkiTensor:
        self.require_plain()


@choice
def outside(tensor: NkiTensor, pattern: Sequence[Sequence[int]], first: int, last: int) -> OutsideTensor:
    """Return the view of an access pattern that an instruction cannot use."""
    sizes = [count for _, count in pattern]
    view = OutsideTensor(tensor.storage, tensor.storage.base.new_empty(()).expand(sizes))
    view.bounds, view.line = (pattern, first, last), kernel_line()
    return view


@choice
def moved_by(tensor: NkiTensor, pattern: Sequence[Sequence[int]], first: int, index: NkiTensor, step: int) -> NkiTensor:
    """Return the view of an access pattern that begins `index` steps after an element; traces keep the index."""
    if tensor.data.is_meta:
        return MovedTensor.of(tensor.by_pattern(pattern, first), index, step)
    return tensor.by_pattern(pattern, first + step * index.scalar())


def refuse_part(tensor: NkiTensor) -> NoReturn:
    """Raise the error of a view of a view whose elements are chosen by indices."""
    refuse(Rule.PART_OF_INDIRECT, tensor=tensor.name)


@choice
def selected(tensor: NkiTensor, place: int, index: NkiTensor) -> NkiTensor:
    """Return one index of a dimension, which is in memory, without the dimension; the view has no other such choice."""
    tensor.require_plain()
    number = 0 if index.data.is_meta else index.scalar()
    size = tensor.shape[place]
    require(0 <= number < size, Rule.INDEX, index=number, dim=place, tensor=tensor.name, size=size)
    pattern = [pair for dim, pair in enumerate(tensor.get_pattern()) if dim != place]
    return moved_by(tensor, pattern, tensor.offset, index, tensor.strides[place])


@choice
def selected_rows(tensor: NkiTensor, dim: int, indices: NkiTensor) -> IndirectTensor:
    """Return the rows of a tensor in HBM that indices on the chip name."""
    tensor.require_plain()
    is_column = indices.size == indices.num_partitions and indices.buffer.is_on_chip
    fits = dim == 0 and tensor.buffer.is_hbm and is_column
    require(fits, Rule.SELECTED_ROWS, dim=dim, of=tensor, indices=indices)
    (step, rows), *rest = tensor.get_pattern()
    pattern = [[step, indices.num_partitions], *rest]
    return IndirectTensor.of(tensor, pattern, tensor.offset, indices, step, rows)


GROUPS = {"vector": 16, "scalar": 16, "gpsimd": 16, "tensor": 32}
"""Partitions that share offsets, by engine."""


class ColumnTensor(IndirectTensor):
    """Gathered or scattered columns of a tile."""

    __slots__ = ("group", "source")
    group: int
    source: NkiTensor

    @classmethod
    def over(cls, tensor: NkiTensor, index: NkiTensor, count: int, group: int = 16) -> ColumnTensor:
        """Return the view of `count` columns of a tensor of two dimensions."""
        view = cls(tensor.storage, tensor.data[:, :1].expand(-1, count))
        view.source, view.indices, view.group, view.skip = tensor, index, group, False
        view.steps = tensor.strides
        return view

    def for_engine(self, engine: str) -> None:
        require(engine in GROUPS, Rule.COLUMNS_ENGINE, of=self, engine=engine)
        index, group = self.indices, GROUPS[engine]
        assert index is not None
        fits = self.shape[0] % group == 0 and self.shape[1] <= group * index.shape[1]
        require(
            fits, Rule.COLUMNS_SHAPE, of=self, engine=engine, group=group, offsets=group * index.shape[1], index=index
        )
        self.group = group

    def _checked(self) -> torch.Tensor:
        assert self.indices is not None
        own = self.indices.integers().reshape(-1, self.group, self.indices.shape[1])
        offsets = own.transpose(1, 2).reshape(len(own), -1)[:, : self.shape[1]].repeat_interleave(self.group, 0)
        begins = torch.arange(self.shape[0], device=offsets.device).unsqueeze(1) * self.steps[0]
        self.addresses = self.source.offset + begins + offsets * self.steps[1]
        self.valid = offsets < self.source.shape[1]
        return super()._checked()

    def _view(self, data: torch.Tensor) -> NkiTensor:
        refuse_part(self)


@choice
def chosen_columns(tensor: NkiTensor, index: NkiTensor, count: int) -> ColumnTensor:
    """Return columns of a tile that offsets name."""
    tensor.require_plain()
    core = current()
    require(core.generation >= 4, Rule.INDIRECT_GENERATION, core=core)
    fits = index.ndim == 2 and index.buffer.value == "sbuf" and index.dtype == "uint16"
    fits &= tensor.ndim == 2 and tensor.shape[0] == index.shape[0] and tensor.buffer.is_on_chip and count > 0
    require(fits, Rule.INDIRECT_COLUMNS, count=count, of=tensor, index=index)
    return ColumnTensor.over(tensor, index, count)
