"""Checkpoints that were published with quantized weights, under the names of the plain tensors that they stand for.

    fp8                 weight (float8 e4m3), weight_scale_inv for each block
    compressed-tensors  weight or weight_packed, weight_scale, weight_zero_point
    gptq, awq           qweight, qzeros, scales, g_idx: 4 or 8 bits in int32

`PublishedSource` returns float32 tensors by plain names, and the parts of a scheme where the stored numbers are those
of the scheme: nothing is rounded again. It knows layouts of tensors only; which one a checkpoint has, and which scheme
fits it, is read from its configuration in `exporters/quantization.py`.

Shape legend: O outputs, I inputs, G groups of inputs, P numbers in an int32.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..core import TensorSpec
from ..errors import WeightsError
from .checkpoint import TensorSource
from .schemes import LIMITS, SYMMETRIC_ZERO, Part, Scheme, pack_nibbles

if TYPE_CHECKING:
    import torch

_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Place of each of 8 neighboring columns in an int32 of AWQ (llm-awq, `awq/quantize/qmodule.py`)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Matrix:
    """A quantized matrix with its numbers unpacked."""

    numbers_OI: torch.Tensor
    """int8, float8, or uint8 with zero points."""
    scale_OG: torch.Tensor
    """Scales; one row or one column stands for all."""
    zero_OG: torch.Tensor | None = None
    """Zero points of unsigned numbers."""
    group_I: torch.Tensor | None = None
    """Group of each input, if groups are not neighbors."""

    def dequantized(self) -> torch.Tensor:
        """Return the float32 matrix."""
        import torch

        num_inputs = self.numbers_OI.shape[1]
        group_I = self.group_I
        if group_I is None:
            group_I = torch.arange(num_inputs) * self.scale_OG.shape[1] // num_inputs
        numbers = self.numbers_OI.float()
        if self.zero_OG is not None:
            numbers = numbers - self.zero_OG.float()[:, group_I]
        return numbers * self.scale_OG.float()[:, group_I]

    def parts(self, scheme: Scheme) -> dict[Part, torch.Tensor] | None:
        """Return the parts of a scheme that these numbers are, or None if they would have to be rounded."""
        import torch

        num_outputs, num_inputs = self.numbers_OI.shape
        num_groups = num_inputs // (scheme.group_size or num_inputs)
        if self.group_I is not None or num_groups % self.scale_OG.shape[1]:
            return None
        numbers, zero = self.numbers_OI, self.zero_OG
        kind = "fp8" if numbers.is_floating_point() else "int4" if zero is not None else "int8"
        if zero is not None and scheme.kind == "int8" and bool(torch.all(zero == 128)):
            numbers, zero, kind = (numbers.to(torch.int16) - 128).to(torch.int8), None, "int8"
        is_shifted = zero is not None and not bool(torch.all(zero == SYMMETRIC_ZERO))
        if kind != scheme.kind or (is_shifted and not scheme.has_zeros) or (kind == "int4" and int(numbers.max()) > 15):
            return None
        specs = scheme.specs(num_outputs, num_inputs)
        repeat = num_groups // self.scale_OG.shape[1]
        scale = self.scale_OG.float().repeat_interleave(repeat, 1).expand(num_outputs, -1)
        if kind == "fp8":
            numbers, scale = _within_limit(numbers, scale)
        parts: dict[Part, torch.Tensor] = {
            "values": pack_nibbles(numbers) if kind == "int4" else numbers,
            "scale": scale.to(getattr(torch, specs["scale"].dtype)).contiguous(),
        }
        if scheme.has_zeros:
            assert zero is not None, "4-bit numbers are unsigned"
            parts["zero"] = zero.repeat_interleave(repeat, 1).expand(num_outputs, -1).to(torch.uint8).contiguous()
        return parts


def _within_limit(numbers: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Halve groups with numbers beyond the chip's e4m3, and double their scales: exact but for the smallest numbers."""
    import torch

    groups = numbers.float().unflatten(1, (scale.shape[1], -1))
    factor = torch.where(groups.abs().amax(2) > LIMITS["fp8"], 2.0, 1.0)
    return (groups / factor[..., None]).flatten(1).to(numbers.dtype), scale * factor


class PublishedSource:
    """A checkpoint with quantized tensors, by the names of plain ones."""

    def __init__(self, checkpoint: TensorSource, layout: str) -> None:
        self._checkpoint = checkpoint
        self._read = LAYOUTS[layout]
        specs = checkpoint.specs
        ends = {name.removesuffix(end): end for end in _PARTS for name in specs if _is_values(name, end, specs)}
        self._modules = list(ends)
        self._last: tuple[str, Matrix] | None = None
        problems = [problem for module, end in ends.items() if (problem := self._problem(module, end))]
        if problems:
            rest = f"; and {len(problems) - _NUM_SHOWN} more" if len(problems) > _NUM_SHOWN else ""
            message = f"The quantized weights of {self.origin} cannot be read as {layout}: "
            hint = "Download the checkpoint again, or pass the one that it was quantized from."
            raise WeightsError(f"{message}{'; '.join(problems[:_NUM_SHOWN])}{rest}.", hint=hint, problems=problems)

    @property
    def origin(self) -> str:
        """Source of the tensors, for messages."""
        return self._checkpoint.origin

    @functools.cached_property
    def specs(self) -> dict[str, TensorSpec]:
        """Shape and dtype of every tensor, of quantized ones as they are after dequantizing."""
        specs = self._checkpoint.specs
        plain = {name: spec for name, spec in specs.items() if not any(name.startswith(f"{m}.") for m in self._modules)}
        biases = {f"{module}.bias": specs[f"{module}.bias"] for module in self._modules if f"{module}.bias" in specs}
        return plain | biases | {f"{module}.weight": self._spec(module) for module in self._modules}

    def _problem(self, module: str, end: str) -> str | None:
        """Say what is wrong with the tensors of a module, or return None."""
        specs = self._checkpoint.specs
        missing = [part for part in _PARTS[end] if not any(f"{module}.{one}" in specs for one in (part, f"{part}_inv"))]
        if missing:
            return f"{module} lacks {' and '.join(missing)}"
        if any(f"{module}.{name}" in specs for name in ("g_idx", "weight_g_idx")):
            return None
        num_inputs = self._spec(module).shape[1]
        if end == ".qweight":
            num_groups = specs[f"{module}.scales"].shape[0]
        else:
            name = f"{module}.weight_scale"
            shape = specs[name if name in specs else f"{name}_inv"].shape
            num_groups = shape[1] if len(shape) == 2 else 1
        return f"{module} has {num_inputs} inputs in {num_groups} groups" if num_inputs % num_groups else None

    def _spec(self, module: str) -> TensorSpec:
        specs = self._checkpoint.specs
        if f"{module}.weight" in specs:
            shape = specs[f"{module}.weight"].shape
        elif f"{module}.weight_shape" in specs:
            shape = tuple(int(size) for size in self._checkpoint.join([f"{module}.weight_shape"])[0])
        else:
            packed, zeros, scales = (specs[f"{module}.{part}"].shape for part in ("qweight", "qzeros", "scales"))
            num_per_int = scales[1] // zeros[1]
            is_by_inputs = packed[1] == scales[1]  # GPTQ; AWQ packs outputs
            shape = (scales[1], packed[0] * (num_per_int if is_by_inputs else 1))
        return TensorSpec(shape=shape, dtype="float32")

    def _matrix(self, module: str) -> Matrix:
        if self._last is None or self._last[0] != module:
            specs = self._checkpoint.specs

            def tensor(part: str) -> Any:
                name = f"{module}.{part}"
                return self._checkpoint.join([name])[0] if name in specs else None

            self._last = (module, self._read(tensor))
        return self._last[1]

    def join(self, names: Sequence[str]) -> tuple[torch.Tensor, bool]:
        """Tensors joined along dimension 0, dequantized, and whether that took a copy."""
        import torch

        modules = [name.removesuffix(".weight") for name in names]
        if not set(modules) & set(self._modules):
            return self._checkpoint.join(names)
        tensors = [
            self._matrix(module).dequantized() if module in self._modules else self._checkpoint.join([name])[0].float()
            for module, name in zip(modules, names, strict=True)
        ]
        return (tensors[0] if len(tensors) == 1 else torch.cat(tensors)), True

    def parts(self, name: str, scheme: Scheme) -> dict[Part, torch.Tensor] | None:
        """Return the parts of a tensor in a scheme, or None if it is plain or has to be rounded to the scheme."""
        module = name.removesuffix(".weight")
        return self._matrix(module).parts(scheme) if module in self._modules else None

    def is_plain(self, name: str) -> bool:
        """Return whether the files have the tensor itself, and no numbers of a scheme."""
        return name.removesuffix(".weight") not in self._modules

    def drop_pages(self, names: Sequence[str]) -> None:
        """Let memory go that tensors of a file take."""
        stored = [name for name in self._checkpoint.specs if f"{name.rpartition('.')[0]}.weight" in names]
        self._checkpoint.drop_pages(stored)


_PARTS = {
    ".qweight": ("qzeros", "scales"),
    ".weight_packed": ("weight_scale", "weight_shape"),
    ".weight": ("weight_scale",),
}
"""End of the name of numbers, and the tensors of the module that they need."""
_NUM_SHOWN = 6


def _is_values(name: str, end: str, specs: dict[str, TensorSpec]) -> bool:
    return name.endswith(end) and (end != ".weight" or specs[name].dtype in ("int8", "float8_e4m3fn"))


Tensors = Callable[[str], Any]
"""Returns a tensor of a module by its name within it, or None."""


def _fp8(tensor: Tensors) -> Matrix:
    """Blocks, or one scale for a matrix or for each output; `weight_scale_inv` is multiplied too."""
    numbers, inverse = tensor("weight"), tensor("weight_scale_inv")
    scale = tensor("weight_scale") if inverse is None else inverse
    return Matrix(numbers_OI=numbers, scale_OG=_by_rows(scale, numbers.shape))


def _compressed(tensor: Tensors) -> Matrix:
    packed, scale = tensor("weight_packed"), tensor("weight_scale")
    if packed is None:
        numbers = tensor("weight")
        return Matrix(numbers_OI=numbers, scale_OG=_by_rows(scale, numbers.shape))
    num_outputs, num_inputs = (int(size) for size in tensor("weight_shape"))
    num_bits = next(bits for bits in (4, 8) if -(-num_inputs // (32 // bits)) == packed.shape[1])
    numbers = _unpack(packed, num_bits)[:, :num_inputs]
    zero = tensor("weight_zero_point")
    scale = scale.reshape(num_outputs, -1)
    if zero is None:
        zero = numbers.new_full(scale.shape, 1 << (num_bits - 1))
    else:
        zero = _unpack(zero.t().contiguous(), num_bits).t()[:num_outputs]
    groups = tensor("weight_g_idx")
    return Matrix(numbers_OI=numbers, scale_OG=scale, zero_OG=zero, group_I=_unordered(groups, scale.shape[1]))


def _gptq(tensor: Tensors, *, zero_offset: int = 1) -> Matrix:
    """Numbers are packed along inputs, zero points along outputs; stored zero points are one less."""
    packed, scale_GO, group_I = tensor("qweight"), tensor("scales"), tensor("g_idx")
    num_outputs = packed.shape[1]
    num_bits = 32 * tensor("qzeros").shape[1] // num_outputs
    numbers = _unpack(packed.t().contiguous(), num_bits)
    zero_GO = _unpack(tensor("qzeros"), num_bits)[:, :num_outputs].to(numbers.dtype) + zero_offset
    groups = _unordered(group_I, scale_GO.shape[0])
    return Matrix(numbers_OI=numbers, scale_OG=scale_GO.t(), zero_OG=zero_GO.t(), group_I=groups)


def _awq(tensor: Tensors) -> Matrix:
    """Numbers and zero points are packed along outputs, with the columns of an int32 in another order."""

    def unpacked(packed: torch.Tensor) -> torch.Tensor:
        return _unpack(packed, 4).unflatten(1, (-1, 8))[..., list(_AWQ_ORDER)].flatten(1)

    numbers_IO, zero_GO = unpacked(tensor("qweight")), unpacked(tensor("qzeros"))
    return Matrix(
        numbers_OI=numbers_IO.t().contiguous(), scale_OG=tensor("scales").t(), zero_OG=zero_GO.t().contiguous()
    )


def _unpack(packed: torch.Tensor, num_bits: int) -> torch.Tensor:
    """Return uint8 numbers [R, C * P] of int32 [R, C], the lowest bits first."""
    import torch

    shifts = torch.arange(0, 32, num_bits, dtype=torch.int32)
    return ((packed[..., None] >> shifts) & ((1 << num_bits) - 1)).flatten(1).to(torch.uint8)


def _by_rows(scale: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return scales of blocks for each output; a number stands for all of a matrix."""
    scale = scale.float()
    if scale.numel() == 1:
        return scale.reshape(1, 1)
    if scale.dim() == 1:
        return scale[:, None]
    block = -(-shape[0] // scale.shape[0])
    return scale.repeat_interleave(block, 0)[: shape[0]]


def _unordered(group_I: torch.Tensor | None, num_groups: int) -> torch.Tensor | None:
    """Return the group of each input, or None if groups are neighbors of equal size."""
    import torch

    if group_I is None:
        return None
    group_I = group_I.long()
    return None if torch.equal(group_I, torch.arange(len(group_I)) * num_groups // len(group_I)) else group_I


LAYOUTS: dict[str, Callable[[Tensors], Matrix]] = {
    "fp8": _fp8,
    "compressed-tensors": _compressed,
    "gptq": _gptq,
    "gptq_v2": lambda tensor: _gptq(tensor, zero_offset=0),
    "awq": _awq,
}
"""How a matrix is read, by the name of its layout."""
