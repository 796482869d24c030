"""The dtypes of kernels: names as in `nki.language`, how the host stores them, and how values round to them.

A format that torch has is stored in it. The others (`tfloat32`, `float8_e4m3` with infinities, `float8_e3m4`) are
stored in a wider float that holds all their values, so their sizes on the core are in the table and not the host's.
Values become integers by rounding to nearest even and saturate; NaN becomes 0. Packed formats (`..._x4`) are known by
name and size only.

    >>> from optimum_neuron.nki.dtypes import FORMATS, dtype_name
    >>> FORMATS["float8_e4m3"].size_bytes, dtype_name("torch.bfloat16")
    (1, 'bfloat16')
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from ..base.foreign import name_of
from ..errors import KernelError, nearest

with contextlib.suppress(ImportError):  # it tells NumPy about the dtypes that NumPy lacks, by their names
    import ml_dtypes as _  # noqa: F401


Dtype: TypeAlias = str | torch.dtype | np.dtype[Any] | type
"""How kernels name a dtype: as NKI, torch, and NumPy do."""


class DtypeName(str):
    """The name of a dtype, which equals the dtype of NumPy or of torch that it names."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str.__eq__(self, other)
        return str.__eq__(self, _spelled(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    @property
    def itemsize(self) -> int:
        """Bytes of an element on the core."""
        return FORMATS[self].size_bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Format:
    """One dtype."""

    name: DtypeName
    storage: torch.dtype
    """The host's dtype that holds its values."""
    size_bytes: int
    is_float: bool = True
    mantissa_bits: int | None = None
    """Explicit bits of the mantissa, for a format that the host has not."""
    min_exponent: int = -126
    """Exponent of its smallest normal number."""
    largest: float = torch.finfo(torch.float32).max
    """Largest finite number; larger ones become infinite."""

    @property
    def is_native(self) -> bool:
        """Whether the host has the same format, bit by bit."""
        return self.mantissa_bits is None


def _integer(name: str, storage: torch.dtype) -> Format:
    return Format(name=DtypeName(name), storage=storage, size_bytes=storage.itemsize, is_float=False)


def _float(name: str, storage: torch.dtype, size_bytes: int, **bits: Any) -> Format:
    return Format(name=DtypeName(name), storage=storage, size_bytes=size_bytes, **bits)


FORMATS: Mapping[str, Format] = {
    row.name: row
    for row in (
        _integer("bool", torch.bool),
        *(_integer(name, getattr(torch, name)) for name in ("int8", "int16", "int32", "uint8", "uint16", "uint32")),
        _float("float32", torch.float32, 4),
        _float("tfloat32", torch.float32, 4, mantissa_bits=10),
        _float("bfloat16", torch.bfloat16, 2),
        _float("float16", torch.float16, 2),
        _float("float8_e5m2", torch.float8_e5m2, 1),
        _float("float8_e4m3fn", torch.float8_e4m3fn, 1),
        _float("float8_e8m0fnu", torch.float8_e8m0fnu, 1),
        _float("float8_e4m3", torch.float16, 1, mantissa_bits=3, min_exponent=-6, largest=240.0),
        _float("float8_e3m4", torch.float16, 1, mantissa_bits=4, min_exponent=-2, largest=15.5),
        *(_integer(name, torch.int32) for name in ("float8_e5m2_x4", "float8_e4m3fn_x4")),
        _integer("float4_e2m1fn_x4", torch.int16),
    )
}

PACKED = frozenset(name for name in FORMATS if name.endswith("_x4"))
"""Formats of four values in an element, which only the instructions for microscaling read."""
_ALIASES = {"bool_": "bool", "half": "float16", "float": "float32", "int": "int32"}


def _spelled(dtype: object) -> str:
    """Return the name of a dtype of NumPy or torch, or of a NumPy type, as its library spells it."""
    return str(dtype.name if isinstance(dtype, np.dtype) else name_of(dtype)).removeprefix("torch.")


def dtype_name(dtype: Dtype) -> DtypeName:
    """Return the name of a dtype, given as a name, a dtype of torch or NumPy, or a NumPy type."""
    if isinstance(dtype, str) and dtype in FORMATS:
        return FORMATS[dtype].name
    name = dtype.removeprefix("torch.") if isinstance(dtype, str) else _spelled(dtype)
    name = _ALIASES.get(name, name)
    if name not in FORMATS:
        narrower = {"float64": "float32", "int64": "int32", "uint64": "uint32"}.get(name)
        hint = f"Convert to {narrower}." if narrower else f"Use one of {', '.join(FORMATS)}."
        message = f"A NeuronCore has no dtype '{name}'{nearest(name, FORMATS) or '.'}"
        raise KernelError(message, hint=hint, rule="dtype", dtype=name)
    return FORMATS[name].name


def promoted(first: str, second: str) -> str:
    """Return the dtype that holds values of two others: floats before integers, then the wider, or a wider one.

    >>> promoted("int32", "float16"), promoted("float16", "bfloat16"), promoted("uint8", "int8")
    ('float16', 'float32', 'int16')
    """
    one, two = sorted((FORMATS[first], FORMATS[second]), key=lambda row: (row.is_float, row.size_bytes))
    if one is two or one.is_float != two.is_float or one.storage is torch.bool:
        return two.name
    if one.is_float:
        if one.size_bytes < two.size_bytes:
            return two.name
        return "bfloat16" if two.size_bytes == 1 else "float32"
    is_signed = [row.storage.is_signed for row in (one, two)]
    if is_signed[0] == is_signed[1] or (is_signed[1] and one.size_bytes < two.size_bytes):
        return two.name
    return {1: "int16", 2: "int32"}.get(two.size_bytes, "float32")


def as_float32(value: Any) -> float:
    """Return a number as float32 has it, to nearest: -3.4028235e38 is the smallest, and larger ones are infinite."""
    return float(np.float32(value))


def rounded(values: torch.Tensor, row: Format, *, precise: bool = True) -> torch.Tensor:
    """Return values as the host stores them in a format: rounded to nearest even, integers saturated.

    Args:
        precise: False keeps floats as float32.
    """
    if row.is_float:
        if not precise:
            return values.to(torch.float32)
        return values.to(row.storage) if row.is_native else _narrowed(values.float(), row).to(row.storage)
    if row.storage == torch.bool:
        return values != 0
    if values.dtype == row.storage:
        return values
    limits = torch.iinfo(row.storage)
    if values.is_floating_point():
        values = torch.nan_to_num(values.double(), nan=0.0).round()
    return (
        values.to(torch.float64 if values.is_floating_point() else torch.int64)
        .clamp(limits.min, limits.max)
        .to(row.storage)
    )


def lowest_bits(values: torch.Tensor, row: Format) -> torch.Tensor:
    """Return integers of 64 bits as numbers of an integer format that has their lowest bits."""
    width = 8 * row.size_bytes
    low = values & (2**width - 1)
    return torch.where(low >= 2 ** (width - 1), low - 2**width, low) if row.storage.is_signed else low


def _narrowed(values: torch.Tensor, row: Format) -> torch.Tensor:
    """Round float32 to fewer bits of mantissa; numbers above the largest become infinite."""
    assert row.mantissa_bits is not None
    _, exponent = torch.frexp(values)
    step = torch.exp2((exponent - 1).clamp(min=row.min_exponent).float() - row.mantissa_bits)
    result = torch.round(values / step) * step
    result = torch.where(result.abs() > row.largest, torch.copysign(torch.full_like(result, torch.inf), values), result)
    return torch.where(torch.isfinite(values), result, values)


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def bits_of(values: torch.Tensor) -> torch.Tensor:
    """Return the same memory as integers that torch can index; it cannot index all of the dtypes."""
    return values.view(_BITS[values.dtype.itemsize])


def storage_of(row: Format, *, precise: bool) -> torch.dtype:
    """Return the host's dtype for a format; float32 for every float unless precise."""
    return row.storage if precise or not row.is_float else torch.float32
