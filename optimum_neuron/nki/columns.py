"""Views on the chip whose columns are chosen by offsets in memory, which each group of partitions has for itself.

Column i of a group is the one that its own row `i % size` of the index names, at `i // size`. How many partitions are a
group depends on the engine that accesses the view. Only NeuronCore-v4 has such views.
"""

from __future__ import annotations

import torch

from .core import current, require
from .indirect import IndirectTensor, refuse_part
from .rulebook import Rule
from .tensor import NkiTensor, choice

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
        """Choose the size of a group for the engine that accesses the view."""
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
