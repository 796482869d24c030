"""Matrix products and transposes on the tensor engine.

`dst = stationary.T @ moving` in float32: partitions are the contracted dimension. The sum goes to PSUM, where it
replaces what is there or is added to it.
"""

from __future__ import annotations

import enum

import torch

from .. import cost
from ..core import Core, Rule, require
from ..cost import ISA
from ..memory import Buffer
from ..tensor import NkiTensor
from . import rules
from .base import PSUM, SBUF, Engine, Instruction, instruction

_WIDE = frozenset({"float32", "tfloat32"})
_FP8 = frozenset({"float8_e4m3", "float8_e5m2", "float8_e4m3fn"})
_INPUTS = _WIDE | _FP8 | {"bfloat16", "float16", "float8_e3m4"}
ROWS = {2: (64, 128), 3: (32, 64, 128), 4: (32, 64, 128)}
"""Sizes of row tiles of the array, by generation."""


class MatmulPerfMode(enum.Enum):
    """Performance modes of a matmul."""

    none = "none"
    double_row = "double_row"


@instruction(ISA, "max(min(64, stationary), moving), 4 times as many in float32")
class NcMatmul(Instruction):
    """Compute `stationary.T @ moving` into PSUM; the two hints change nothing here."""

    CONVERT = {"tile_position": tuple, "tile_size": tuple}
    MEMORIES = {"dst": PSUM, "stationary": SBUF, "moving": SBUF}
    DTYPES = dict.fromkeys(("stationary", "moving"), _INPUTS)
    ENGINES = (Engine.tensor,)

    dst: NkiTensor
    stationary: NkiTensor
    moving: NkiTensor
    is_stationary_onezero: bool = False
    is_moving_onezero: bool = False
    is_transpose: bool = False
    accumulate: bool | None = None
    tile_position: tuple[int, ...] = ()
    tile_size: tuple[int, ...] = ()
    perf_mode: MatmulPerfMode = MatmulPerfMode.none

    @property
    def num_rows(self) -> int:
        """Rows of the contraction in one partition."""
        return 2 if self.perf_mode is MatmulPerfMode.double_row else 1

    @property
    def sizes(self) -> tuple[int, int]:
        """Columns of the stationary and of the moving tile."""
        rows = self.num_rows
        return self.stationary.elements_per_partition // rows, self.moving.elements_per_partition // rows

    def check(self, core: Core) -> None:
        rules.not_indirect(self.OPCODE, dst=self.dst)
        self._check_dtypes(core)
        require(self.stationary.num_partitions == self.moving.num_partitions, Rule.CONTRACTION, of=self)
        columns, moved = self.sizes
        rows, width = self._tile(core)
        rules.limit(self.OPCODE, "stationary partition dimension", self.stationary.num_partitions, rows)
        rules.limit(self.OPCODE, "stationary free dimension", columns, width)
        widest = 512 if core.generation < 4 else core.partition_bytes(Buffer.psum) // self.dst.storage.format.size_bytes
        rules.limit(self.OPCODE, "moving free dimension", moved, widest)
        tiles = {"stationary": self.stationary, "moving": self.moving}
        rules.yields(self.OPCODE, "dst", self.dst, (columns, moved), **tiles)

    def _check_dtypes(self, core: Core) -> None:
        dtypes = {self.stationary.dtype, self.moving.dtype}
        require(not dtypes & _WIDE or not dtypes - _WIDE, Rule.MATMUL_DTYPES, of=self)
        if self.perf_mode is MatmulPerfMode.double_row:
            self._check_double_row(core)
        results = set(core.spec.accumulate_dtypes) | ({self.stationary.dtype} if self.is_transpose else set())
        rules.dtype_among(self.OPCODE, "dst", self.dst, results)

    def _check_double_row(self, core: Core) -> None:
        require(core.generation >= 3, Rule.DOUBLE_ROW_GENERATION)
        for name in ("stationary", "moving"):
            tile = getattr(self, name)
            rules.dtype_among(self.OPCODE, name, tile, _FP8)
            require(tile.ndim >= 3 and tile.shape[1] == 2, Rule.DOUBLE_ROW_SHAPE, name=name, tile=tile)

    def _tile(self, core: Core) -> tuple[int, int]:
        if not self.tile_size:
            return 128, 128
        rows, columns = self.tile_size
        rules.is_among(self.OPCODE, "tile_size", rows, ROWS[core.generation])
        rules.is_among(self.OPCODE, "tile_size", columns, ROWS[core.generation])
        row, column = self.tile_position or (0, 0)
        fits = row % rows == column % columns == 0 and row + rows <= 128 and column + columns <= 128
        require(fits, Rule.ARRAY_TILE, of=self)
        return rows, columns

    def run(self, core: Core) -> None:
        if self.is_transpose and core.generation > 2:
            self.dst.write(self.stationary.read().reshape(self.stationary.num_partitions, -1).T)
            return
        left, right = self.stationary.rows(), self.moving.rows()
        if self.num_rows == 2:
            left, right = (tile.reshape(2 * len(tile), -1) for tile in (left, right))
        data, written = self.dst.data, self.dst.storage.written
        if written.flags is None and data.dtype == torch.float32 and data.is_contiguous():
            total = data if data.dim() == 2 else data.view(len(data), -1)
            if not written.is_blank and self.accumulate is not False:
                total.addmm_(left.T, right)
                return
            if self.accumulate is not True and self.dst.storage.covers(data):
                torch.mm(left.T, right, out=total)
                self.dst.storage.mark_written(data)
                return
        add_to(self.dst, left.T @ right, self.accumulate)

    def cycles(self, core: Core) -> float:
        return cost.tensor_cycles(core, self.moving, num_columns=self.sizes[1], num_stationary=self.sizes[0])


def add_to(dst: NkiTensor, product: torch.Tensor, accumulate: bool | None) -> None:
    """Write a product to PSUM, or add it to what is there; None adds to elements that were written before."""
    product = product.reshape(dst.shape)
    parts = dst.storage.mask_of(dst.data)
    mask = None if parts is None else parts.all(-1)
    if accumulate is None:
        accumulate = mask is None or bool(mask.all())
        if not accumulate and mask is not None and bool(mask.any()):
            product = torch.where(mask, dst.data.float() + product, product)
    elif accumulate:
        dst.read()
    if accumulate and dst.data.dtype == torch.float32:
        dst.data.add_(product)
    else:
        dst.write(dst.data.float() + product if accumulate else product)


@instruction(ISA, "max(P, min(64, N)); vector: max(64, N)")
class NcTranspose(Instruction):
    """Transpose a tile: 128 by 128 on the tensor engine, 32 by 32 on the vector engine."""

    ENGINES = (Engine.tensor, Engine.vector)
    SAME_DTYPE = ("data", "dst")

    dst: NkiTensor
    data: NkiTensor
    engine: Engine = Engine.unknown

    def resolved_engine(self, core: Core) -> Engine:
        """Return the vector engine for tiles that it can transpose, or that the tensor engine cannot reach."""
        if self.engine is not Engine.unknown:
            return super().resolved_engine(core)
        small = max(self.data.extent) <= 32
        reachable = self.data.buffer is Buffer.sbuf and self.dst.buffer is Buffer.psum
        return Engine.vector if small or not reachable else Engine.tensor

    def check(self, core: Core) -> None:
        partitions, elements = self.data.num_partitions, self.data.elements_per_partition
        engine = self.resolved_engine(core)
        most = 128 if engine is Engine.tensor else 32
        rules.limit(f"nc_transpose on the {engine.name} engine:", "partition dimension", partitions, most)
        rules.limit(f"nc_transpose on the {engine.name} engine:", "free dimension", elements, most)
        is_reached = (self.data.buffer, self.dst.buffer) == (Buffer.sbuf, Buffer.psum)
        require(is_reached or engine is Engine.vector, Rule.TRANSPOSE_MEMORY, of=self)
        rules.yields(self.OPCODE, "dst", self.dst, (elements, partitions), data=self.data)

    def run(self, core: Core) -> None:
        self.dst.write(self.data.read().reshape(self.data.num_partitions, -1).T)

    def cycles(self, core: Core) -> float:
        is_tensor = self.resolved_engine(core) is Engine.tensor
        return cost.transpose_cycles(core, self.data) if is_tensor else super().cycles(core)
