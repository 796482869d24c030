"""Schemes of quantized weights: how matrices [..., outputs, inputs] become small numbers with scales, and back.

    int8            8 bits, one scale for each output
    fp8             float8 e4m3, the same; fp8-g128: one scale for each 128 inputs of an output
    int4-g32        4 bits, one scale for each 32 inputs of an output; int4-g32-zp: with zero points
    int8-dynamic    int8, and so are the inputs, with a scale for each token; fp8-dynamic
    mxfp4           fp4 e2m1, a power of two for each 32 inputs of an output (`mx.py`); of experts

All are symmetric except those with zero points: a weight is `scale * (number - zero)`. Two 4-bit numbers share a byte:
byte j of 16 has weight j of a run of 32 in its low half and weight j + 16 in its high half, stored as 0 to 15; the zero
of a symmetric one is 8. This is the layout of llama.cpp's Q4_0. It knows no files and no models.

    >>> Scheme.parse("int4").name
    'int4-g32'

Shape legend: O outputs, I inputs, G groups of inputs.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Literal, Self

from ..base.core import TensorSpec
from ..errors import ConfigError
from .mx import mx_scale, quantize_mx, unpack_mx

if TYPE_CHECKING:
    import torch

SCHEME_NAMES = ("int8", "fp8", "int4", "mxfp4")
"""Schemes in their usual form."""

Part = Literal["values", "scale", "zero"]
"""What a quantized matrix consists of."""

RUN = 32
"""Weights whose 4-bit numbers share 16 bytes; a group is one or several runs."""

SYMMETRIC_ZERO = 8
"""Number of a 4-bit weight of zero."""

LIMITS = {"int8": 127.0, "fp8": 240.0}
"""Largest number of a scheme of 8 bits. That of fp8 is the chip's: its e4m3 ends at 240, and up to there its bits are
those of torch's `float8_e4m3fn`."""

_DTYPES = {"int8": "int8", "fp8": "float8_e4m3fn", "int4": "uint8", "mxfp4": "uint8"}
_SCALE_DTYPES = {"int8": "float32", "fp8": "float32", "int4": "float16", "mxfp4": "uint8"}
_FORM = re.compile(r"(int8|fp8|int4|mxfp4)(?:-g(\d+))?(-zp)?(-dynamic)?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scheme:
    """One way to quantize a matrix."""

    kind: str
    """"int8", "fp8", "int4", or "mxfp4"."""
    group_size: int = 0
    """Inputs that share a scale; 0: all of them."""
    has_zeros: bool = False
    """Groups have zero points."""
    is_dynamic: bool = False
    """What the matrix multiplies is quantized too, while it runs: each token with its own scale."""

    @property
    def name(self) -> str:
        """Spelling that `parse` reads."""
        if self.kind == "mxfp4":
            return self.kind
        size = f"-g{self.group_size}" if self.group_size else ""
        return self.kind + size + "-zp" * self.has_zeros + "-dynamic" * self.is_dynamic

    @property
    def dtype(self) -> str:
        """torch's name of the dtype of the stored numbers."""
        return _DTYPES[self.kind]

    @property
    def parts(self) -> tuple[Part, ...]:
        """What a matrix consists of."""
        return ("values", "scale", "zero") if self.has_zeros else ("values", "scale")

    @property
    def unit(self) -> int:
        """Neighboring inputs that stay together: a group, of which values and scales are stored together."""
        return self.group_size or 1

    @property
    def per_byte(self) -> int:
        """Numbers that share a byte."""
        return 2 if _DTYPES[self.kind] == "uint8" else 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a scheme."""
        found = _FORM.fullmatch(text)
        kind, size, zeros, dynamic = found.groups() if found else ("", None, None, None)
        group_size = int(size or (RUN if kind in ("int4", "mxfp4") else 0))
        is_wrong = group_size % RUN or (size and not group_size) or (size and kind == "mxfp4")
        if not kind or is_wrong or (zeros and kind != "int4") or (dynamic and group_size):
            forms = f"{', '.join(SCHEME_NAMES)}, int8-dynamic, int4-g128-zp, or fp8-g128"
            hint = f"Pass {forms}; groups have a multiple of {RUN} inputs."
            raise ConfigError(f"quantization={text!r} is not supported.", hint=hint, option="quantization", value=text)
        return cls(kind=kind, group_size=group_size, has_zeros=bool(zeros), is_dynamic=bool(dynamic))

    def specs(self, *shape: int) -> dict[Part, TensorSpec]:
        """Return shape and dtype of each part of matrices [..., O, I]."""
        *leading, num_inputs = shape
        groups = (*leading, num_inputs // (self.group_size or num_inputs))
        specs: dict[Part, TensorSpec] = {
            "values": TensorSpec(shape=(*leading, num_inputs // self.per_byte), dtype=self.dtype),
            "scale": TensorSpec(shape=groups, dtype=_SCALE_DTYPES[self.kind]),
        }
        if self.has_zeros:
            specs["zero"] = TensorSpec(shape=groups, dtype="uint8")
        return specs

    def fits(self, num_inputs: int) -> bool:
        """Return whether groups divide so many inputs."""
        return num_inputs % self.unit == 0

    def quantize(self, weight_OI: torch.Tensor) -> dict[Part, torch.Tensor]:
        """Return the parts of a matrix; scales are chosen by the largest weight of a group."""
        import torch

        weight_OGI = weight_OI.detach().float().unflatten(1, (-1, self.group_size or weight_OI.shape[1]))
        if self.kind == "mxfp4":
            values_OG, scale_OG = quantize_mx(weight_OGI)
            return {"values": values_OG.flatten(1), "scale": scale_OG}
        dtype = torch.float16 if self.kind == "int4" else torch.float32
        if self.has_zeros:
            low_OG, high_OG = weight_OGI.amin(2).clamp(max=0), weight_OGI.amax(2).clamp(min=0)
            scale_OG = _nonzero((high_OG - low_OG) / 15, dtype)
            zero_OG = (-low_OG / scale_OG.float()).round()  # at most 15: scales are normal numbers
            numbers = (weight_OGI / scale_OG.float()[..., None]).round() + zero_OG[..., None]
            return {
                "values": pack_nibbles(numbers.clamp(0, 15).flatten(1)),
                "scale": scale_OG,
                "zero": zero_OG.to(torch.uint8),
            }
        if self.kind == "int4":
            # The largest weight becomes -8, whatever its sign: as in Q4_0, all 16 numbers are used.
            largest_OG = weight_OGI.gather(2, weight_OGI.abs().argmax(2, keepdim=True)).squeeze(2)
            scale_OG = _nonzero(largest_OG / -SYMMETRIC_ZERO, dtype)
            numbers = (weight_OGI / scale_OG.float()[..., None]).round().clamp(max=7).flatten(1)
            return {"values": pack_nibbles(numbers + SYMMETRIC_ZERO), "scale": scale_OG}
        limit = LIMITS[self.kind]
        scale_OG = _nonzero(weight_OGI.abs().amax(2) / limit, dtype)
        numbers = (weight_OGI / scale_OG.float()[..., None]).clamp(-limit, limit).flatten(1)
        if self.kind == "fp8":
            return {"values": numbers.to(torch.float8_e4m3fn), "scale": scale_OG}
        return {"values": numbers.round().to(torch.int8), "scale": scale_OG}


def quantize_rows(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return int8 or float8 numbers of a tensor [..., I], and the float32 scale [..., 1] of each row."""
    import torch

    limit = LIMITS["int8" if dtype == torch.int8 else "fp8"]
    x = x.float()
    scale = (x.abs().amax(-1, keepdim=True) / limit).clamp(min=torch.finfo(torch.float32).tiny)
    numbers = (x / scale).clamp(-limit, limit)
    return (numbers.round() if dtype == torch.int8 else numbers).to(dtype), scale


HEAD_SCHEME = Scheme(kind="int8")
"""Scheme of the head of a model whose other layers have 4 bits or fp8."""


def parse_schemes(text: str) -> tuple[Scheme, Scheme]:
    """Read a scheme of linear layers, and that of the head, which may follow after a slash: "int4/int8-g32".

    Without one, the head has the scheme of the layers if that is of int8, else int8 by rows.

    Example:
        >>> [scheme.name for scheme in parse_schemes("int4")]
        ['int4-g32', 'int8']
    """
    layers, slash, head = text.partition("/")
    scheme = Scheme.parse(layers)
    if slash:
        return scheme, Scheme.parse(head)
    return scheme, scheme if scheme.kind == "int8" and not scheme.is_dynamic else HEAD_SCHEME


def dequantize(values: torch.Tensor, scale_OG: torch.Tensor, zero_OG: torch.Tensor | None = None) -> torch.Tensor:
    """Return the float32 matrices [..., O, I] of their parts."""
    import torch

    if scale_OG.dtype == torch.uint8:
        return (unpack_mx(values).unflatten(-1, (-1, RUN)) * mx_scale(scale_OG)[..., None]).flatten(-2)
    is_packed = values.dtype == torch.uint8
    numbers = unpack_nibbles(values) if is_packed else values.float()
    numbers_OGI = numbers.unflatten(-1, (scale_OG.shape[-1], -1))
    if zero_OG is not None:
        numbers_OGI = numbers_OGI - zero_OG.float()[..., None]
    elif is_packed:
        numbers_OGI = numbers_OGI - SYMMETRIC_ZERO
    return (numbers_OGI * scale_OG.float()[..., None]).flatten(-2)


def pack_nibbles(numbers_OI: torch.Tensor) -> torch.Tensor:
    """Return bytes [O, I / 2] of numbers from 0 to 15."""
    import torch

    low, high = numbers_OI.to(torch.uint8).unflatten(1, (-1, 2, RUN // 2)).unbind(2)
    return (low | (high << 4)).flatten(1)


def unpack_nibbles(values: torch.Tensor) -> torch.Tensor:
    """Return the float32 numbers [..., O, I] of bytes [..., O, I / 2]."""
    import torch

    bytes_ = values.unflatten(-1, (-1, RUN // 2))
    return torch.stack([bytes_ & 15, bytes_ >> 4], -2).flatten(-3).float()


def _nonzero(scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Scales as stored; a group of zeros has the smallest normal number."""
    import torch

    return scale.abs().clamp(min=torch.finfo(dtype).tiny).copysign(scale).to(dtype)
