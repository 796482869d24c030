"""Quantization to microscaling formats, and matmuls of them. Both need NeuronCore-v4."""

from __future__ import annotations

import torch

from .. import cost, microscaling as mx
from ..core import Core, Rule, require
from ..cost import ASSUMED
from ..tensor import NkiTensor
from . import rules
from .base import PSUM, SBUF, Engine, Instruction, instruction
from .matmul import add_to

_FP8 = frozenset({"float8_e5m2_x4", "float8_e4m3fn_x4"})
_PACKED = _FP8 | {"float4_e2m1fn_x4"}
_SCALE_STARTS = (0, 4, 8, 12)
"""Partitions of each 32 where scales may start: Neuron docs, NKI, MXFP matmul, "Packed scales"."""


def _check_scales(opcode: str, name: str, scale: NkiTensor, packed: NkiTensor) -> None:
    needed = mx.scale_rows(packed.num_partitions)[-1] + 1
    fits = needed <= scale.num_partitions and scale.elements_per_partition == packed.elements_per_partition
    require(fits, Rule.SCALES, opcode=opcode, operand=name, scale=scale, packed=packed, needed=needed)


@instruction(ASSUMED)
class QuantizeMx(Instruction):
    """Round blocks of 8 partitions by 4 values to FP8 with a common scale; needs NeuronCore-v4."""

    MEMORIES = {"dst": SBUF, "src": SBUF, "dst_scale": SBUF}
    DTYPES = {"src": {"float16", "bfloat16"}, "dst": _FP8, "dst_scale": {"uint8"}}
    STARTS = {"dst_scale": _SCALE_STARTS}
    MIN_GENERATION = 4

    dst: NkiTensor
    src: NkiTensor
    dst_scale: NkiTensor

    def check(self, core: Core) -> None:
        partitions, elements = self.src.extent
        rules.multiple(self.OPCODE, "src", "partitions", partitions, mx.QUADRANT)
        rules.multiple(self.OPCODE, "src", "elements in a partition", elements, mx.VALUES)
        rules.yields(self.OPCODE, "dst", self.dst, (partitions, elements // mx.VALUES), src=self.src)
        _check_scales(self.OPCODE, "dst_scale", self.dst_scale, self.dst)

    def run(self, core: Core) -> None:
        values = self.src.rows().reshape(self.src.num_partitions, -1, mx.VALUES)
        scales = mx.block_scales(values, self.dst.dtype)
        self.dst.write(mx.packed(values / mx.multiples(scales), self.dst.dtype))
        rows = mx.scale_rows(self.dst.num_partitions)
        spread = torch.zeros((self.dst_scale.num_partitions, scales.shape[1]), dtype=scales.dtype)
        chosen = torch.zeros_like(spread, dtype=torch.bool)
        spread[rows], chosen[rows] = scales, True
        shape = self.dst_scale.shape
        self.dst_scale.write_where(chosen.reshape(shape), spread.reshape(shape))


@instruction(ASSUMED, "max(64, moving)")
class NcMatmulMx(Instruction):
    """Compute `stationary.T @ moving` of packed values times their scales into PSUM; needs NeuronCore-v4."""

    CONVERT = {"tile_position": tuple, "tile_size": tuple}
    MEMORIES = {"dst": PSUM} | dict.fromkeys(("stationary", "moving", "stationary_scale", "moving_scale"), SBUF)
    DTYPES = {
        **dict.fromkeys(("stationary", "moving"), _PACKED),
        **dict.fromkeys(("stationary_scale", "moving_scale"), {"uint8"}),
        "dst": {"float32", "bfloat16"},
    }
    STARTS = {"stationary_scale": _SCALE_STARTS, "moving_scale": _SCALE_STARTS}
    ENGINES = (Engine.tensor,)
    MIN_GENERATION = 4

    dst: NkiTensor
    stationary: NkiTensor
    moving: NkiTensor
    stationary_scale: NkiTensor
    moving_scale: NkiTensor
    tile_position: tuple[int, ...] | None = None
    tile_size: tuple[int, ...] | None = None
    accumulate: bool | None = None

    def check(self, core: Core) -> None:
        rules.not_indirect(self.OPCODE, dst=self.dst)
        partitions, columns = self.stationary.num_partitions, self.stationary.elements_per_partition
        for name in ("stationary", "moving"):
            tile = getattr(self, name)
            rules.multiple(self.OPCODE, name, "partitions", tile.num_partitions, mx.QUADRANT)
            _check_scales(self.OPCODE, f"{name}_scale", getattr(self, f"{name}_scale"), tile)
        rules.limit(self.OPCODE, "stationary free dimension", columns, 128)
        widest = 512 if self.dst.dtype == "float32" else 1024
        moved = self.moving.elements_per_partition
        rules.limit(self.OPCODE, "moving free dimension", moved, widest)
        self._check_tile(partitions)
        tiles = {"stationary": self.stationary, "moving": self.moving}
        rules.same_partitions(self.OPCODE, **tiles)
        rules.multiple(self.OPCODE, "stationary", "columns", columns, 2)
        rules.yields(self.OPCODE, "dst", self.dst, (columns, moved), **tiles)

    def _check_tile(self, partitions: int) -> None:
        if not self.tile_size:
            return
        rows, columns = self.tile_size
        rules.is_among(self.OPCODE, "tile_size", rows, (32, 64, 128))
        rules.is_among(self.OPCODE, "tile_size", columns, (128,))
        rules.limit(self.OPCODE, "stationary partition dimension", partitions, rows)
        row, column = self.tile_position or (0, 0)
        rules.is_among(self.OPCODE, "tile_position", (row, column), [(start, 0) for start in range(0, 128, rows)])

    def run(self, core: Core) -> None:
        left = _dequantized(self.stationary, self.stationary_scale)
        right = _dequantized(self.moving, self.moving_scale)
        add_to(self.dst, left.T @ right, self.accumulate)

    def cycles(self, core: Core) -> float:
        return cost.tensor_cycles(core, self.moving, num_columns=self.moving.elements_per_partition)


def _dequantized(tile: NkiTensor, scale: NkiTensor) -> torch.Tensor:
    """Return the values as rows of the contraction: [partitions * 4, columns]."""
    partitions, per_quadrant = tile.num_partitions, mx.QUADRANT // mx.BLOCK_PARTITIONS
    quadrants = [scale[start : start + per_quadrant].integers() for start in range(0, partitions, mx.QUADRANT)]
    scales = torch.cat(quadrants).reshape(partitions // mx.BLOCK_PARTITIONS, -1)
    values = mx.unpacked(tile.read().reshape(partitions, -1), tile.dtype) * mx.multiples(scales)
    return values.transpose(1, 2).reshape(partitions * mx.VALUES, -1)
