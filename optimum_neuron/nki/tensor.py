"""`NkiTensor`: a view of a tensor in HBM, SBUF or PSUM, as `nki.language` documents it.

Views share memory. On the chip dimension 0 is the partition dimension: an index there keeps it, with size 1, and views
do not move it.

An element of a view is named by `offset` and `strides`, in elements of the tensor it comes from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .core import Rule, refuse, require
from .dtypes import FORMATS, Dtype, dtype_name
from .elements import Elements
from .rearranging import Pattern, arrangement

Slice = slice
"""The builtin, which the method of the same name hides in the class."""
CHOICES: dict[str, Callable[..., NkiTensor]] = {}
"""Views whose elements indices in memory choose, by name: `indirect.py` knows how."""


def choice(function: Callable[..., NkiTensor]) -> Callable[..., NkiTensor]:
    """Register a view whose elements indices in memory choose."""
    CHOICES[function.__name__] = function
    return function


class NkiTensor(Elements):
    """A view of a tensor in one of the memories."""

    __slots__ = ()

    def _view(self, data: torch.Tensor) -> NkiTensor:
        return type(self)(self.storage, data)

    def __getitem__(self, key: object) -> NkiTensor:
        data, is_on_chip = self.data, self.buffer.is_on_chip
        shape, strides, first = data.shape, data.stride(), data.storage_offset()
        sizes: list[int] = []
        steps: list[int] = []
        dim = 0
        for position, item in enumerate(self._full_key(key)):
            if item is None:
                sizes.append(1)
                steps.append(shape[dim] * strides[dim] if dim < len(shape) else 1)
                continue
            if isinstance(item, slice):
                start, stop, step = self._bounds(item, shape[dim], dim)
                sizes.append(-((start - stop) // step))
                steps.append(step * strides[dim])
            else:
                index, size = int(item), shape[dim]
                require(-size <= index < size, Rule.INDEX, index=index, dim=dim, tensor=self.name, size=size)
                start = index % size
                if position == 0 and is_on_chip:
                    sizes.append(1)
                    steps.append(strides[dim])
            first += start * strides[dim]
            dim += 1
        if is_on_chip and len(sizes) < 2:
            sizes.append(1)
            steps.append(1)
        return self._view(data.as_strided(sizes, steps, first))

    def is_same_view(self, other: object) -> bool:
        """Return whether something is the same part of the same memory."""
        if not isinstance(other, NkiTensor) or other.storage is not self.storage:
            return False
        return (other.offset, other.shape, other.strides) == (self.offset, self.shape, self.strides)

    def __setitem__(self, key: object, value: object) -> None:
        if self[key].is_same_view(value):
            return
        refuse(Rule.ASSIGNMENT, of=self)

    def _full_key(self, key: object) -> list[Any]:
        keys: list[Any] = list(key) if isinstance(key, tuple) else [key]
        given = len([None for item in keys if item is not None and item is not Ellipsis])
        if given == len(keys) == self.ndim:
            return keys
        require(given <= self.ndim, Rule.NUM_INDICES, of=self, given=given)
        rest = [slice(None)] * (self.ndim - given)
        if any(item is Ellipsis for item in keys):
            place = next(number for number, item in enumerate(keys) if item is Ellipsis)
            return [*keys[:place], *rest, *keys[place + 1 :]]
        return [*keys, *rest]

    def _bounds(self, item: Slice, size: int, dim: int) -> tuple[int, int, int]:
        step = 1 if item.step is None else int(item.step)
        start = 0 if item.start is None else int(item.start)
        stop = size if item.stop is None else int(item.stop)
        start, stop = start + size * (start < 0), stop + size * (stop < 0)
        if step < 1 or start < 0 or stop > size or start > stop:
            refuse(Rule.SLICE, of=self, start=start, stop=stop, step=step, dim=dim, size=size)
        return start, stop, step

    def _free_dim(self, dim: int, action: str) -> int:
        place = dim % self.ndim if -self.ndim <= dim < self.ndim else dim
        if not 0 <= place < self.ndim or (place == 0 and self.buffer.is_on_chip):
            refuse(Rule.FIRST_DIM if place == 0 else Rule.DIM, action=action, dim=dim, of=self)
        return place

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """Return elements start to end of a dimension."""
        return self[(*[slice(None)] * (dim % self.ndim), slice(start, end, step))]

    def select(self, dim: int, index: Any) -> NkiTensor:
        """Return one index of a dimension, without the dimension; the partition dimension stays, with size 1.

        The index may be a number, a register, or a tensor with one element, which is read when the kernel runs.
        """
        if isinstance(index, NkiTensor):
            return CHOICES["selected"](self, self._free_dim(dim, "A selection by an index in memory"), index)
        place = dim % self.ndim
        key: list[Any] = [slice(None)] * self.ndim
        key[place] = int(index)
        return self[tuple(key)]

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Return the rows of a tensor in HBM that indices on the chip name: row p of the view is row `index[p]`.

        Args:
            dim: dimension that the indices are of, which is 0.
            vector_offset: the indices, of shape (partitions, 1).

        Raises:
            KernelError: another dimension, a tensor on the chip, or a view by indices already.
        """
        return CHOICES["selected_rows"](self, dim, vector_offset)

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """Return columns that offsets in memory name, on NeuronCore-v4, to gather from or scatter to.

        Each group of partitions (16, and 32 for the tensor engine) has its own offsets: column i of the group that
        begins at partition `start` is the one that `index[start + i % 16, i // 16]` names.

        Args:
            index: the offsets, uint16 in SBUF, with as many partitions.
            num_elem: number of columns (default: all elements of the index, which fit one group).

        Raises:
            KernelError: an older core, or operands that the view cannot have.
        """
        return CHOICES["chosen_columns"](self, index, index.size if num_elem is None else num_elem)

    def permute(self, dims: Sequence[int]) -> NkiTensor:
        """Return the dimensions in another order; the partition dimension of an on-chip tensor stays first."""
        keeps_first = self.buffer.is_on_chip or self.is_indirect()
        fits = sorted(dims) == list(range(self.ndim)) and (dims[0] == 0 or not keeps_first)
        require(fits, Rule.PERMUTATION, of=self, dims=tuple(dims))
        return self._view(self.data.permute(*dims))

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """Repeat a dimension of size 1, without copying."""
        place = self._free_dim(dim, "A broadcast")
        sizes = [*self.shape[:place], size, *self.shape[place + 1 :]]
        return self._view(self.data.expand(sizes))

    def expand_dim(self, dim: int) -> NkiTensor:
        """Insert a dimension of size 1."""
        if self.buffer.is_on_chip and dim == 0:
            self._free_dim(dim, "An insertion in front")
        return self._view(self.data.unsqueeze(dim))

    def squeeze_dim(self, dim: int) -> NkiTensor:
        """Remove a dimension of size 1."""
        place = self._free_dim(dim, "A removal")
        require(self.shape[place] == 1, Rule.SQUEEZE, of=self, dim=dim, size=self.shape[place])
        return self._view(self.data.squeeze(place))

    def reshape(self, shape: Sequence[int]) -> NkiTensor:
        """Return the elements in another shape, without copying; on the chip the partitions stay."""
        sizes = [shape] if isinstance(shape, int) else list(shape)
        fits = math.prod(sizes) == self.size and (self.buffer.is_hbm or sizes[0] == self.num_partitions)
        require(fits, Rule.RESHAPE, of=self, wanted=tuple(sizes))
        try:
            return self._view(self.data.view(sizes))
        except RuntimeError:
            refuse(Rule.RESHAPE_STRIDES, of=self, wanted=tuple(sizes))

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> NkiTensor:
        """Split one dimension into several; one of them may be -1."""
        place = dim % self.ndim
        sizes = list(shape)
        if -1 in sizes:
            sizes[sizes.index(-1)] = self.shape[place] // max(1, -math.prod(sizes))
        return self.reshape([*self.shape[:place], *sizes, *self.shape[place + 1 :]])

    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """Join the dimensions from start to end, both included."""
        start, end = start_dim % self.ndim, end_dim % self.ndim
        return self.reshape([*self.shape[:start], math.prod(self.shape[start : end + 1]), *self.shape[end + 1 :]])

    def rearrange(
        self,
        src_pattern: Pattern,
        dst_pattern: Pattern,
        fixed_sizes: Mapping[str, int] | None = None,
    ) -> NkiTensor:
        """Split, reorder and join dimensions by name: `(("b", ("h", "w")), ("b", "w", "h"), {"h": 4})`.

        Args:
            src_pattern: a name for each dimension; a tuple of names splits one.
            dst_pattern: the same names in the new order; a tuple of names joins them.
            fixed_sizes: sizes by name; of each tuple, all but one.

        Raises:
            KernelError: patterns that do not fit, or that need a copy.
        """
        splits, order, joins = arrangement(self, src_pattern, dst_pattern, fixed_sizes or {})
        view = self
        for dim, sizes in splits:
            view = view.reshape_dim(dim, sizes)
        view = view.permute(order)
        for start, end in joins:
            view = view.flatten_dims(start, end)
        return view

    def view(self, dtype: Dtype) -> NkiTensor:
        """Read the same bytes as another dtype; the last dimension shrinks or grows with the size of the elements."""
        require(not self.is_indirect(), Rule.INDIRECT_VIEW, of=self)
        row, own = FORMATS[dtype_name(dtype)], self.storage.format
        if row is own:
            return self
        is_piece = self.ndim > 0 and self.data.stride(-1) == 1
        fits = is_piece and self.shape[-1] * own.size_bytes % row.size_bytes == 0
        require(fits, Rule.VIEW, of=self, row=row)
        return type(self)(self.reinterpreted(row), self.data.view(row.storage))

    reinterpret_cast = view

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: Any = None,
        indirect_dim: int = 0,
        dtype: Dtype | None = None,
    ) -> NkiTensor:
        """Return a view by steps and counts, [[step, count], ...], of the whole tensor; it begins where this one does.

        Steps, counts and the offset are of elements of `dtype`. On the chip the first pair counts partitions, and its
        step is the number of elements in one.

        Args:
            pattern: step and count of each dimension.
            offset: elements from the begin of this view to that of the new one.
            scalar_offset: an index in memory or a register; the view begins so many steps of `indirect_dim` later.
            vector_offset: indices in memory of the rows of the view.
            indirect_dim: dimension of this view that indices are of.
            dtype: dtype as which the memory is read.

        Raises:
            KernelError: it leaves the tensor.
        """
        self.require_plain()
        own = self.storage.format
        row = own if dtype is None else FORMATS[dtype_name(dtype)]
        tensor = self if row is own else type(self)(self.reinterpreted(row))
        first = self.in_elements(self.offset, row) + (offset or 0)
        row_size = tensor.storage.row
        is_next = self.buffer.is_hbm or pattern[0][1] <= 1 or pattern[0][0] == row_size
        require(is_next, Rule.PATTERN_PARTITION_STEP, of=self, pattern=pattern, per_partition=row_size)
        if vector_offset is None and scalar_offset is None:
            return tensor.by_pattern(pattern, first)
        step = self.in_elements(self.strides[indirect_dim], row)
        if vector_offset is not None:
            return CHOICES["gathered"](tensor, pattern, first, vector_offset, step, self.shape[indirect_dim])
        if isinstance(scalar_offset, NkiTensor):
            return CHOICES["moved_by"](tensor, pattern, first, scalar_offset, step)
        return tensor.by_pattern(pattern, first + step * int(scalar_offset))

    def require_plain(self) -> None:
        """Require a view whose elements no indices choose yet."""
        require(not self.is_indirect(), Rule.SECOND_INDIRECT, tensor=self.name)

    def by_pattern(self, pattern: Sequence[Sequence[int]], first: int) -> NkiTensor:
        """Return a view by steps and counts of the whole tensor that begins at an element of it.

        One that ends behind the tensor is refused where an instruction uses it.
        """
        sizes, steps = [count for _, count in pattern], [step for step, _ in pattern]
        last = first + sum(step * (count - 1) for step, count in pattern)
        base = self.storage.base
        if 0 <= first <= last and base.numel() <= last:
            return CHOICES["outside"](self, pattern, first, last)
        self.require_inside(pattern, first, last)
        return self._view(base.as_strided(sizes, steps, base.storage_offset() + first))

    def require_inside(self, pattern: Sequence[Sequence[int]], first: int, last: int) -> None:
        """Require an access pattern from one element to another within the whole tensor."""
        size = self.storage.base.numel()
        is_legal = all(step >= 0 and count >= 1 for step, count in pattern)
        fits = is_legal and first >= 0 and last < size
        require(fits, Rule.PATTERN_BOUNDS, pattern=pattern, first=first, last=last, tensor=self.name, size=size)

    def scalar(self) -> int:
        """Return the only element, which an address or a register needs."""
        require(self.size == 1, Rule.ONE_ELEMENT, of=self)
        return int(self.read().reshape(()).item())
