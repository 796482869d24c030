"""One GGUF file of llama.cpp, mapped: its settings, and the bytes of each tensor.

The format is public (ggml's `docs/gguf.md`): a header with settings and the place of every tensor, then the data. Lists
of text, and long lists such as the scores of a vocabulary, are skipped. It decodes no numbers; `gguf.py` does.

    GgufFile.open(path).entries["blk.0.attn_q.weight"].type_name
"""

from __future__ import annotations

import dataclasses
import math
import mmap
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.wording import listed
from ..errors import WeightsError

if TYPE_CHECKING:
    import torch

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Code of `struct` for each type of a setting."""
_TEXT, _LIST = 8, 9
_ALIGNMENT = "general.alignment"
_MAX_DIMS = 4
_MAX_LIST = 1024
"""Numbers of the longest list that is read: one for each layer; those of a vocabulary are skipped."""
_MAX_DEPTH = 4
"""Of lists within lists; published files have none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GgufEntry:
    """Where a tensor is, and in which form."""

    shape: tuple[int, ...]
    """Of its numbers, outputs first as in torch."""
    type_number: int
    """Form of its blocks, an `enum ggml_type`."""
    begin: int
    """First byte in the file."""
    end: int
    """One past the last byte."""

    @property
    def type_name(self) -> str:
        """Form in lower case, such as "q8_0"."""
        from gguf import GGMLQuantizationType

        return str(GGMLQuantizationType(self.type_number).name).lower()


class GgufFile:
    """A GGUF file; `entries` lists its tensors, and `settings` its values; skipped lists are None."""

    def __init__(self, buffer: memoryview, name: str) -> None:
        self.name = name
        self._buffer = buffer
        self.settings, self.entries = _Header(buffer, name).read()

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        """Map a file privately."""
        try:
            with open(path, "rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            hint = "Check the path, or download the file again."
            raise WeightsError(f"{path} cannot be mapped: {error}.", hint=hint, path=str(path)) from error
        return cls(memoryview(mapped), str(path))

    def rows(self, name: str) -> torch.Tensor:
        """Return the bytes of a tensor as a view of the file: [outputs, bytes of an output], leading axes kept."""
        import torch

        entry = self.entries[name]
        data = torch.frombuffer(self._buffer, dtype=torch.uint8, count=entry.end - entry.begin, offset=entry.begin)
        return data.view(*entry.shape[:-1], -1)


class _Header:
    """The header of a file, read from its start; every read checks the bounds of the file."""

    def __init__(self, buffer: memoryview, name: str) -> None:
        self._buffer, self._name, self._place = buffer, name, len(MAGIC)

    def read(self) -> tuple[dict[str, Any], dict[str, GgufEntry]]:
        start = bytes(self._buffer[: len(MAGIC)])
        if start != MAGIC:
            raise self._broken(f"it starts with {start!r} instead of {MAGIC!r}")
        version = self._number("I")
        if version not in _VERSIONS:
            raise self._broken(f"its version is {version} instead of {' or '.join(map(str, _VERSIONS))}")
        num_tensors, num_settings = self._number("Q"), self._number("Q")
        settings = dict(self._setting() for _ in range(num_settings))
        found = [self._tensor() for _ in range(num_tensors)]
        alignment = settings.get(_ALIGNMENT, 32)
        if type(alignment) is not int or alignment <= 0:
            raise self._broken(f"its alignment is {alignment}")
        data_begin = -(-self._place // alignment) * alignment
        entries, problems = {}, []
        for name, shape, type_number, offset in found:
            begin = data_begin + offset
            size = self._size_bytes(name, shape, type_number)
            if begin + size > len(self._buffer):
                problems.append(name)
            entries[name] = GgufEntry(shape=shape, type_number=type_number, begin=begin, end=begin + size)
        if problems:
            problem = f"it has {len(self._buffer):,} bytes and ends before {listed(problems, 4)}"
            raise self._broken(problem, tensors=problems)
        return settings, entries

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, num_dims = self._text(), self._number("I")
        if num_dims > _MAX_DIMS:
            raise self._broken(f"tensor {name} has {num_dims} axes")
        shape = tuple(self._number("Q") for _ in range(num_dims))[::-1]
        return name, shape, self._number("I"), self._number("Q")

    def _size_bytes(self, name: str, shape: tuple[int, ...], type_number: int) -> int:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        try:
            block, size = GGML_QUANT_SIZES[GGMLQuantizationType(type_number)]
        except (KeyError, ValueError):
            raise self._broken(f"tensor {name} has the unknown type {type_number}") from None
        if not shape or not all(shape) or shape[-1] % block:
            problem = f"tensor {name} of shape {list(shape)} is not divided by blocks of {block}"
            raise self._broken(problem, tensor=name, shape=list(shape), block=block)
        return math.prod(shape) // block * size

    def _setting(self) -> tuple[str, Any]:
        key = self._text()
        return key, self._value(self._number("I"))

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind == _TEXT:
            return self._text()
        if kind == _LIST:
            of, length = self._number("I"), self._number("Q")
            if of in _SCALARS:
                values = self._take(length * struct.calcsize(_SCALARS[of]))
                return struct.unpack(f"<{length}{_SCALARS[of]}", values) if length <= _MAX_LIST else None
            if depth == _MAX_DEPTH:
                raise self._broken(
                    f"a setting has lists within lists, more than {_MAX_DEPTH} deep", max_depth=_MAX_DEPTH
                )
            for _ in range(length):
                self._value(of, depth + 1)
            return None
        if kind not in _SCALARS:
            raise self._broken(f"a setting has the unknown type {kind}")
        return self._number(_SCALARS[kind])

    def _text(self) -> str:
        return bytes(self._take(self._number("Q"))).decode("utf-8", "replace")

    def _number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(code)))[0]

    def _take(self, length: int) -> memoryview:
        if self._place + length > len(self._buffer):
            raise self._broken(f"it ends within its header, after {len(self._buffer):,} bytes")
        self._place += length
        return self._buffer[self._place - length : self._place]

    def _broken(self, problem: str, **details: object) -> WeightsError:
        message = f"{self._name} is not a complete GGUF file: {problem}."
        return WeightsError(message, hint="Download the file again.", path=self._name, problem=problem, **details)
