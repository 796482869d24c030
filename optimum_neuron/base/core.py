"""The vocabulary: small frozen dataclasses that every other package uses.

It does not depend on torch, files or hardware numbers. Import from here instead of defining a second "bucket" or
"choice" elsewhere.

    >>> from optimum_neuron.base.core import TensorSpec
    >>> TensorSpec(shape=(1, 128), dtype="int64").size_bytes
    1024
"""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import Any, Generic, Literal, TypeVar

AutoCast = Literal["none", "matmul", "all"]
AutoCastType = Literal["bf16", "fp16", "tf32", "fp8_e4m3"]
OptLevel = Literal["1", "2", "3"]
TorchDtype = Literal["float32", "bfloat16", "float16"]
KVCacheDtype = Literal["auto", "int8", "fp8", "fp8-static"]
AttentionKernel = Literal["plain", "nki"]

# fmt: off
DTYPE_SIZE_BYTES: dict[str, int] = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint16": 2, "uint32": 4, "uint64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e8m0fnu": 1, "float16": 2, "bfloat16": 2, "float32": 4,
    "float64": 8, "complex64": 8, "complex128": 16,
}
# fmt: on
"""Bytes of one element, by torch's dtype name without the `torch.` prefix."""

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """Static shape and dtype of one tensor."""

    shape: tuple[int, ...]
    """Every dimension is a number: graphs are static."""
    dtype: str
    """torch's name without the prefix, for example "bfloat16"."""

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.num_elements * DTYPE_SIZE_BYTES[self.dtype]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rejected:
    """A candidate that an automatic choice did not take, and why."""

    candidate: str
    """Alternative that was considered."""
    reason: str
    """Why it lost."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice(Generic[T]):
    """An automatic choice with its reason and the candidates that lost.

    >>> print(Choice(value=128, reason="it fits", rejected=(Rejected(candidate="64", reason="too small"),)))
    128 (it fits)
      not 64: too small
    """

    value: T
    """Chosen value."""
    reason: str
    """Why it was chosen."""
    rejected: tuple[Rejected, ...] = ()
    """The candidates that lost, best first."""

    def __str__(self) -> str:
        lines = [f"{self.value} ({self.reason})"]
        lines += [f"  not {r.candidate}: {r.reason}" for r in self.rejected]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Show the value, the reason, and the rejected candidates in a notebook."""
        from html import escape

        rows = [(str(self.value), self.reason), *((f"not {one.candidate}", one.reason) for one in self.rejected)]
        cells = "".join(f"<tr><td>{escape(what)}</td><td>{escape(why)}</td></tr>" for what, why in rows)
        return f"<table>{cells}</table>"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        value = self.value if isinstance(self.value, (str, int, float, bool, type(None))) else str(self.value)
        return {"value": value, "reason": self.reason, "rejected": [dataclasses.asdict(r) for r in self.rejected]}


class Verdict(enum.StrEnum):
    """Verdict of the target on an operator."""

    NATIVE = "native"
    DECOMPOSED = "decomposed"
    HOST = "host"
    UNSUPPORTED = "unsupported"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ruling:
    """The verdict of one rule on one operator call, with everything a user needs to act on it."""

    verdict: Verdict
    """Verdict of the call."""
    op: str
    """Operator as torch prints it, for example "aten.sort.default"."""
    rule: str
    """Name of the rule that decided."""
    reason: str
    """Why."""
    source: str
    """Document and section the rule comes from."""
    code: str | None = None
    """The NCC_... code that the real compiler would give, for refusals."""
    remedy: str | None = None
    """Remedy for the user, for unsupported calls."""
    module_path: str | None = None
    """Module path in the user's model, for example "model.layers.3.mlp"."""
    source_line: str | None = None
    """file:line of the user's code, where known."""
