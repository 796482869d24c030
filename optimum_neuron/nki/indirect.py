"""Views whose rows are chosen by indices in memory, for gathers and scatters by DMA.

Row p of the view begins at index p of a vector, times the step of the indexed dimension; the other dimensions follow
the access pattern.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import torch

from .core import refuse
from .dtypes import bits_of, rounded
from .tensor import NkiTensor


class IndirectTensor(NkiTensor):
    """A gathered or scattered view."""

    __slots__ = ("addresses", "dim", "first", "indices", "skip", "steps", "valid")
    addresses: torch.Tensor
    dim: int
    first: int
    indices: NkiTensor | None
    steps: tuple[int, ...]
    valid: torch.Tensor
    skip: bool

    @classmethod
    def of(
        cls, tensor: NkiTensor, pattern: Sequence[Sequence[int]], offset: int, indices: NkiTensor, dim: int
    ) -> IndirectTensor:
        """Return the view of a tensor by an access pattern whose first dimension goes by indices."""
        storage = tensor.storage
        step = math.prod(storage.shape[dim + 1 :])
        counts = [count for _, count in pattern]
        rows = indices.integers().T.reshape(-1)[: counts[0]]
        addresses = rows * step + offset
        for place, (stride, count) in enumerate(pattern[1:], start=1):
            addresses = addresses.unsqueeze(-1) + torch.arange(count, device=rows.device) * stride
            assert addresses.dim() == place + 1
        view = cls(storage, storage.base.reshape(-1)[:1].expand(counts))
        view.addresses = addresses
        view.valid = ((rows >= 0) & (rows < storage.shape[dim])).reshape(-1, *[1] * (len(counts) - 1)).expand(counts)
        view.skip = False
        view.indices, view.first, view.dim = indices, offset, dim
        view.steps = tuple(stride for stride, _ in pattern)
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
        """Return True."""
        return True

    def with_skip(self, skip: bool) -> Self:
        """Return the view with the rule for indices outside of the tensor."""
        self.skip = skip
        return self

    def _checked(self) -> torch.Tensor:
        total = self.storage.base.numel()
        bad = ~self.valid | (self.addresses < 0) | (self.addresses >= total)
        if bool(bad.any()) and not self.skip:
            refuse(
                f"{int(bad.any(dim=tuple(range(1, bad.dim()))).sum())} indices are outside of {self.name}, whose shape "
                f"is {self.storage.shape}.",
                hint="Correct the indices, or pass oob_mode=nisa.oob_mode.skip.",
                rule="bounds",
                tensor=self.name,
            )
        return ~bad

    def read(self) -> torch.Tensor:
        """Return the gathered elements; skipped ones are 0."""
        good = self._checked()
        flat = bits_of(self.storage.base.reshape(-1))
        return (flat[self.addresses.where(good, 0)] * good).view(self.storage.base.dtype)

    def write(self, values: torch.Tensor) -> None:
        """Scatter values."""
        good, storage = self._checked(), self.storage
        stored = rounded(values.reshape(self.addresses.shape)[good], storage.format, precise=storage.precise)
        bits_of(storage.base.view(-1))[self.addresses[good]] = bits_of(stored)
        if storage.written is not None:
            storage.written[self.addresses[good]] = True


class MovedTensor(NkiTensor):
    """A view of a tensor without memory, whose begin is chosen by an index in memory when the kernel runs."""

    __slots__ = ("dim", "first", "index", "viewed")
    dim: int
    first: int
    index: NkiTensor
    viewed: str | None

    @classmethod
    def of(
        cls, tensor: NkiTensor, pattern: Sequence[Sequence[int]], offset: int, index: NkiTensor, dim: int, dtype: Any
    ) -> MovedTensor:
        """Return the view of an access pattern that begins `index` steps of a dimension later."""
        plain = tensor.ap(pattern, offset, dtype=dtype)
        view = cls(plain.storage, plain.data)
        view.first, view.index, view.dim = offset, index, dim
        view.viewed = None if dtype is None else plain.dtype
        return view

    def is_indirect(self) -> bool:
        """Return True."""
        return True

    def _view(self, data: torch.Tensor) -> NkiTensor:
        refuse(
            f"A part of {self.name} at an offset in memory is taken in a kernel that is traced.",
            hint="Give the access pattern of the part.",
            rule="stream",
            tensor=self.name,
        )
