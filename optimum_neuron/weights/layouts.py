"""How published checkpoints store a quantized matrix: numbers, scales, zero points, and which of them belong together.

    fp8                 weight (float8 e4m3), weight_scale_inv for each block
    compressed-tensors  weight or weight_packed, weight_scale, weight_zero_point
    gptq, awq           qweight, qzeros, scales, g_idx: 4 or 8 bits in int32

Block and group sizes come from the configuration, never from a division of shapes: the last block of a dimension may be
smaller than the others. A `Matrix` has the numbers unpacked. This module knows the tensors of one module only.

Shape legend: O outputs, I inputs, G groups of inputs, P numbers in an int32.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .schemes import LIMITS, SYMMETRIC_ZERO, Part, Scheme, pack_nibbles

if TYPE_CHECKING:
    import torch

_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Place of each of 8 neighboring columns in an int32 of AWQ (llm-awq, `awq/quantize/qmodule.py`)."""
_E8M0_BIAS = 127
_WORD_BITS = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """How the quantized matrices of a checkpoint are stored, by its configuration."""

    method: str
    """"fp8", "compressed-tensors", "gptq", or "awq"."""
    num_bits: int = 8
    block: tuple[int, int] = (0, 0)
    """Outputs and inputs that share a scale; 0: all."""
    is_symmetric: bool = True
    """Weights of zero have the same number everywhere; zero points that are stored say nothing more."""
    zero_offset: int = 0
    """What is missing in a stored zero point: 1 in the first version of GPTQ."""
    carries: bool = False
    """The offset was subtracted from whole integers of packed zero points, and borrowed from the next one."""

    @property
    def per_int(self) -> int:
        """Numbers that share an int32."""
        return _WORD_BITS // self.num_bits

    @property
    def half(self) -> int:
        """Number of a weight of zero, if numbers are symmetric and stored without sign."""
        return 1 << (self.num_bits - 1)

    def grid(self, num_outputs: int, num_inputs: int) -> tuple[int, int]:
        """Return the shape of the scales of a matrix."""
        rows, columns = self.block
        return (-(-num_outputs // rows) if rows else 1, -(-num_inputs // columns) if columns else 1)

    def has_scales(self, shape: Sequence[int], num_outputs: int, num_inputs: int) -> bool:
        """Return whether scales of a shape are those of a matrix; a column and a single one may have fewer dimensions.

        Files of the method fp8 may have a single one in any case, and one for each output if they have no blocks.
        """
        allowed = {self.grid(num_outputs, num_inputs)}
        if self.method == "fp8":
            allowed.add((1, 1) if any(self.block) else (num_outputs, 1))
        return (*shape, 1, 1)[: max(2, len(shape))] in allowed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Matrix:
    """A quantized matrix with its numbers unpacked."""

    numbers_OI: torch.Tensor
    """float8, or uint8 with zero points."""
    scale_OG: torch.Tensor
    """float32; one row or one column stands for all."""
    zero_OG: torch.Tensor | None = None
    """Zero points of unsigned numbers."""
    group_size: int = 0
    """Neighboring inputs that share a column of scales, if there are several columns; 0: all of them."""
    group_I: torch.Tensor | None = None
    """Group of each input, if groups are not neighbors."""

    def dequantized(self) -> torch.Tensor:
        """Return the float32 matrix."""
        group_I = self._groups_of(1) if self.group_I is None else self.group_I
        numbers = self.numbers_OI.float()
        if self.zero_OG is not None:
            numbers = numbers - self.zero_OG.float()[:, group_I]
        return numbers * self.scale_OG[:, group_I]

    def _groups_of(self, size: int) -> torch.Tensor:
        """Return the group of each run of `size` inputs."""
        import torch

        first_input = torch.arange(self.numbers_OI.shape[1] // size) * size
        return first_input // self._shared if self._shared else torch.zeros_like(first_input)

    @property
    def _shared(self) -> int:
        """Neighboring inputs that share a scale; 0: all of them."""
        return self.group_size if self.scale_OG.shape[1] > 1 else 0

    def _numbers_of(self, scheme: Scheme) -> torch.Tensor | None:
        """Return the numbers as a scheme stores them, or None if it has others."""
        import torch

        numbers, zero = self.numbers_OI, self.zero_OG
        if numbers.is_floating_point():
            return numbers if scheme.kind == "fp8" and zero is None else None
        assert zero is not None, "integers have zero points"
        if scheme.kind == "int8":
            return (numbers ^ 128).view(torch.int8) if bool(torch.all(zero == 128)) else None
        if scheme.kind != "int4" or int(numbers.max()) > 15:
            return None
        lowest, highest = int(zero.min()), int(zero.max())
        has_own = lowest >= 0 and highest <= 15 if scheme.has_zeros else lowest == highest == SYMMETRIC_ZERO
        return numbers if has_own else None

    def parts(self, scheme: Scheme) -> dict[Part, torch.Tensor] | None:
        """Return the parts of a scheme that these numbers are, or None if they would have to be rounded."""
        import torch

        num_outputs, num_inputs = self.numbers_OI.shape
        size = scheme.group_size or num_inputs
        if self.group_I is not None or self._shared % size:
            return None
        numbers, zero = self._numbers_of(scheme), self.zero_OG
        if numbers is None:
            return None
        groups = self._groups_of(size)
        scale = self.scale_OG[:, groups].expand(num_outputs, -1)
        if scheme.kind == "fp8":
            numbers, scale = _within_limit(numbers, scale)
        specs = scheme.specs(num_outputs, num_inputs)
        parts: dict[Part, torch.Tensor] = {
            "values": pack_nibbles(numbers) if scheme.kind == "int4" else numbers,
            "scale": scale.to(getattr(torch, specs["scale"].dtype)).contiguous(),
        }
        if scheme.has_zeros:
            assert zero is not None, "integers have zero points"
            parts["zero"] = zero[:, groups].expand(num_outputs, -1).to(torch.uint8).contiguous()
        return parts


def _within_limit(numbers: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Halve groups with numbers beyond the chip's e4m3, and double their scales: exact but for the smallest numbers."""
    import torch

    groups = numbers.float().unflatten(1, (scale.shape[1], -1))
    factor = torch.where(groups.abs().amax(2) > LIMITS["fp8"], 2.0, 1.0)
    return (groups / factor[..., None]).flatten(1).to(numbers.dtype), scale * factor


Tensors = Callable[[str], Any]
"""Returns a tensor of a module by its name within it, or None."""


def read_fp8(tensor: Tensors, layout: Layout) -> Matrix:
    """Read blocks, or one scale for a matrix or for each output; `weight_scale_inv` is multiplied too."""
    numbers = tensor("weight")
    return Matrix(numbers_OI=numbers, **_scales(tensor("weight_scale"), numbers.shape, layout))


def read_compressed(tensor: Tensors, layout: Layout) -> Matrix:
    """Read packed numbers, or those of torch's own dtypes; integers have signs unless they are packed."""
    import torch

    packed, zero = tensor("weight_packed"), tensor("weight_zero_point")
    if packed is not None:
        num_outputs, num_inputs = (int(size) for size in tensor("weight_shape"))
        numbers = _unpack(packed, layout.num_bits)[:, :num_inputs]
    else:
        numbers = tensor("weight")
        num_outputs, num_inputs = numbers.shape
    scales = _scales(tensor("weight_scale"), numbers.shape, layout)
    if numbers.is_floating_point():
        zero_OG = None if zero is None or not bool(zero.any()) else _by_rows(zero.float(), numbers.shape, layout)
        return Matrix(numbers_OI=numbers, zero_OG=zero_OG, **scales)
    if packed is None:
        numbers = (numbers.to(torch.int16) + layout.half).to(torch.uint8)
    if zero is None:
        zero_OG = torch.full_like(scales["scale_OG"], layout.half)
    elif packed is not None and _is_packed_zero(zero, num_outputs, layout):
        zero_OG = _unpack(zero.t().contiguous(), layout.num_bits).t()[:num_outputs]
    else:
        zero_OG = _by_rows(zero.float() + layout.half, numbers.shape, layout)
    if layout.is_symmetric and not bool(torch.all(zero_OG == layout.half)):
        raise ValueError("has zero points other than 0, and symmetric says that it has none")
    groups = tensor("weight_g_idx")
    is_unused = groups is not None and bool((groups < 0).all())  # as it was before it got values
    return _grouped(Matrix(numbers_OI=numbers, zero_OG=zero_OG, **scales), None if is_unused else groups)


def read_gptq(tensor: Tensors, layout: Layout) -> Matrix:
    """Read numbers that are packed along inputs, and zero points along outputs."""
    import torch

    scale_GO, stored = tensor("scales").float(), tensor("qzeros")
    num_outputs = scale_GO.shape[1]
    numbers = _unpack(tensor("qweight").t().contiguous(), layout.num_bits)
    zero_GO = _unpack(stored, layout.num_bits)[:, :num_outputs]
    mask = (1 << layout.num_bits) - 1
    if layout.is_symmetric:
        # Files of both versions say "gptq": half the range is stored as it is, or one less.
        found = {int(zero_GO.min()), int(zero_GO.max())}
        if found not in ({layout.half}, {layout.half - 1}):
            raise ValueError(f"has zero points of {min(found)} to {max(found)}, and sym says that all are the same")
        zero_GO = torch.full_like(zero_GO, layout.half)
    elif layout.carries:
        ones = sum(layout.zero_offset << (layout.num_bits * place) for place in range(layout.per_int))
        words = stored.long() + ones
        zero_GO = torch.stack([(words >> (layout.num_bits * place)) & mask for place in range(layout.per_int)], -1)
        zero_GO = zero_GO.flatten(1)[:, :num_outputs].to(torch.uint8)
    else:
        zero_GO = ((zero_GO.int() + layout.zero_offset) & mask).to(torch.uint8)
    matrix = Matrix(numbers_OI=numbers, scale_OG=scale_GO.t(), zero_OG=zero_GO.t(), group_size=layout.block[1])
    return _grouped(matrix, tensor("g_idx"))


def read_awq(tensor: Tensors, layout: Layout) -> Matrix:
    """Read numbers and zero points packed along outputs, with the columns of an int32 in another order."""

    def unpacked(packed: torch.Tensor) -> torch.Tensor:
        columns = _unpack(packed, layout.num_bits).unflatten(1, (-1, layout.per_int))
        return columns[..., list(_AWQ_ORDER)].flatten(1).t().contiguous()

    scale_GO = tensor("scales").float()
    numbers, zeros = unpacked(tensor("qweight")), unpacked(tensor("qzeros"))
    return Matrix(numbers_OI=numbers, scale_OG=scale_GO.t(), zero_OG=zeros, group_size=layout.block[1])


READERS: dict[str, Callable[[Tensors, Layout], Matrix]] = {
    "fp8": read_fp8,
    "compressed-tensors": read_compressed,
    "gptq": read_gptq,
    "awq": read_awq,
}
"""How a matrix is read, by method."""


def _unpack(packed: torch.Tensor, num_bits: int) -> torch.Tensor:
    """Return uint8 numbers [R, C * P] of int32 [R, C], the lowest bits first."""
    import torch

    shifts = torch.arange(0, _WORD_BITS, num_bits, dtype=torch.int32)
    return ((packed[..., None] >> shifts) & ((1 << num_bits) - 1)).flatten(1).to(torch.uint8)


def _is_packed_zero(zero: torch.Tensor, num_outputs: int, layout: Layout) -> bool:
    """Return whether zero points are packed along outputs, as those of groups and outputs are."""
    import torch

    return zero.dtype == torch.int32 and zero.shape[:-1] == (-(-num_outputs // layout.per_int),)


def _scales(scale: torch.Tensor, shape: Sequence[int], layout: Layout) -> dict[str, Any]:
    """Return the scales of each output, and how many inputs share one."""
    import torch

    if scale.dtype == torch.uint8:  # e8m0 in bytes
        scale = torch.exp2(scale.float() - _E8M0_BIAS)
    return {"scale_OG": _by_rows(scale.float(), shape, layout), "group_size": layout.block[1]}


def _by_rows(values: torch.Tensor, shape: Sequence[int], layout: Layout) -> torch.Tensor:
    """Return values of blocks for each output; a single one stands for all of a matrix."""
    num_outputs = shape[0]
    if values.numel() == 1:
        return values.reshape(1, 1)
    if values.shape[0] == num_outputs:
        return values.reshape(num_outputs, -1)
    return values.repeat_interleave(layout.block[0] or num_outputs, 0)[:num_outputs]


def _grouped(matrix: Matrix, groups: torch.Tensor | None) -> Matrix:
    """Return a matrix with the group of each input, if a module stores them and they are not neighbors."""
    import torch

    num_groups = matrix.scale_OG.shape[1]
    if groups is None or num_groups == 1:
        return matrix
    group_I = groups.long()
    if int(group_I.min()) < 0 or int(group_I.max()) >= num_groups:
        raise ValueError(f"has inputs in groups {int(group_I.min())} to {int(group_I.max())}, but {num_groups} groups")
    size = matrix.group_size
    is_in_order = size and torch.equal(group_I, torch.arange(len(group_I)) // size)
    return matrix if is_in_order else dataclasses.replace(matrix, group_I=group_I)
