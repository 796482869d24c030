"""Quantization to microscaling formats, and matmuls of them. Both need NeuronCore-v4.

An element has four values, and each block of 8 partitions by 4 values a power of two, as the public documentation of
`quantize_mx` describes. Scales are exponents with the bias 127 (E8M0 of the OCP specification); 255 is
NaN. The scale of a block is that of the specification: the exponent of its largest value less the largest exponent of
the format. Values beyond the format saturate.
"""

from __future__ import annotations

import torch

from .. import cost
from ..core import Core, Rule, require
from ..cost import ASSUMED
from ..tensor import NkiTensor
from . import rules
from .base import PSUM, SBUF, Engine, Instruction, instruction
from .matmul import add_to
from .rules import QUADRANT

BLOCK_PARTITIONS, VALUES = 8, 4
_LARGEST = {"float8_e5m2_x4": torch.float8_e5m2, "float8_e4m3fn_x4": torch.float8_e4m3fn}
_EXPONENTS = {"float8_e5m2_x4": 15, "float8_e4m3fn_x4": 8}
_FP8 = frozenset(_LARGEST)
_PACKED = _FP8 | {"float4_e2m1fn_x4"}
_SCALE_STARTS = (0, 4, 8, 12)
"""Partitions of each 32 where scales may start: Neuron docs, NKI, MXFP matmul, "Packed scales"."""
_FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
NAN_SCALE, BIAS = 255, 127


def unpacked_values(packed: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the values of packed elements as float32, in a last dimension of four."""
    if dtype in _LARGEST:
        return packed.contiguous().unsqueeze(-1).view(torch.uint8).view(_LARGEST[dtype]).float()
    codes = (packed.to(torch.int64).unsqueeze(-1) >> (4 * torch.arange(VALUES))) & 15
    return torch.where(codes >= 8, -1.0, 1.0) * _FP4[codes & 7]


def block_scales(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the scales of the blocks of [partitions, elements, 4] as bytes, [blocks, elements]."""
    blocks = values.reshape(-1, BLOCK_PARTITIONS, *values.shape[1:])
    largest = blocks.abs().amax((1, 3))
    _, exponent = torch.frexp(largest)
    scales = (exponent - 1 - _EXPONENTS[dtype] + BIAS).clamp(0, NAN_SCALE - 1)
    scales = torch.where(largest == 0, torch.zeros_like(scales), scales)
    return torch.where(torch.isfinite(largest), scales, NAN_SCALE)


def multiples(scales: torch.Tensor) -> torch.Tensor:
    """Return the factors of scales [blocks, elements] for [partitions, elements, 1]."""
    factors = torch.exp2(scales.double() - BIAS).float()
    factors = torch.where(scales == NAN_SCALE, torch.nan, factors)
    return factors.repeat_interleave(BLOCK_PARTITIONS, dim=0).unsqueeze(-1)


def packed_values(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return values [..., 4] rounded to a format and packed; they saturate."""
    kind = _LARGEST[dtype]
    largest = torch.finfo(kind).max
    return values.clamp(-largest, largest).to(kind).view(torch.uint8).contiguous().view(torch.int32).squeeze(-1)


def scale_rows(partitions: int) -> list[int]:
    """Return the partitions that hold the scales of so many partitions: the first four of each 32."""
    blocks = partitions // BLOCK_PARTITIONS
    per_quadrant = QUADRANT // BLOCK_PARTITIONS
    return [block // per_quadrant * QUADRANT + block % per_quadrant for block in range(blocks)]


def _check_scales(opcode: str, name: str, scale: NkiTensor, packed: NkiTensor) -> None:
    needed = scale_rows(packed.num_partitions)[-1] + 1
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
        rules.multiple(self.OPCODE, "src", "partitions", partitions, QUADRANT)
        rules.multiple(self.OPCODE, "src", "elements in a partition", elements, VALUES)
        rules.yields(self.OPCODE, "dst", self.dst, (partitions, elements // VALUES), src=self.src)
        _check_scales(self.OPCODE, "dst_scale", self.dst_scale, self.dst)

    def run(self, core: Core) -> None:
        values = self.src.rows().reshape(self.src.num_partitions, -1, VALUES)
        scales = block_scales(values, self.dst.dtype)
        self.dst.write(packed_values(values / multiples(scales), self.dst.dtype))
        rows = scale_rows(self.dst.num_partitions)
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
            rules.multiple(self.OPCODE, name, "partitions", tile.num_partitions, QUADRANT)
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
    partitions, per_quadrant = tile.num_partitions, QUADRANT // BLOCK_PARTITIONS
    quadrants = [scale[start : start + per_quadrant].integers() for start in range(0, partitions, QUADRANT)]
    scales = torch.cat(quadrants).reshape(partitions // BLOCK_PARTITIONS, -1)
    values = unpacked_values(tile.read().reshape(partitions, -1), tile.dtype) * multiples(scales)
    return values.transpose(1, 2).reshape(partitions * VALUES, -1)
