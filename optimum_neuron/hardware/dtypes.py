"""Dtype names: torch's, the hardware's own, and the compiler's short ones, mapped to one spelling.

Torch's names are kept. The hardware has formats that torch has not: `tfloat32`, `float8_e3m4`, `float8_e4m3` (the
IEEE-like one; torch's `float8_e4m3fn` has another range), `mxfp8` and `mxfp4` (blocks of 32 that share a scale).

    >>> from optimum_neuron.hardware import canonical_dtype
    >>> canonical_dtype("bf16"), canonical_dtype("torch.half"), canonical_dtype("fp8_e4m3")
    ('bfloat16', 'float16', 'float8_e4m3')
"""

from __future__ import annotations

from ..base.core import DTYPE_SIZE_BYTES
from ..errors import invalid_choice

ALIASES: dict[str, str] = {
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "tf32": "tfloat32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "fp8_e4m3": "float8_e4m3",
    "fp8_e5m2": "float8_e5m2",
    "fp8_e3m4": "float8_e3m4",
    "f8e4m3": "float8_e4m3",
    "fp64": "float64",
    "f64": "float64",
    "double": "float64",
    "char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
}
"""Other spellings."""

HARDWARE_DTYPES = ("float8_e3m4", "float8_e4m3", "mxfp4", "mxfp8", "tfloat32")
"""Names that `core.DTYPE_SIZE_BYTES` does not have, because no tensor of the host has that dtype."""

KNOWN_DTYPES: tuple[str, ...] = tuple(sorted({*DTYPE_SIZE_BYTES, *HARDWARE_DTYPES}))
"""Every dtype that can be asked about."""


def canonical_dtype(name: str) -> str:
    """Return the one spelling of a dtype.

    Args:
        name: torch's name with or without "torch.", a hardware name, or a short name such as "bf16".

    Raises:
        ConfigError: there is no such dtype.
    """
    key = name.strip().lower().removeprefix("torch.")
    key = ALIASES.get(key, key)
    if key not in KNOWN_DTYPES:
        raise invalid_choice("dtype", name, [*KNOWN_DTYPES, *ALIASES])
    return key
