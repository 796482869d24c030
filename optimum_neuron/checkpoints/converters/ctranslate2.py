"""Reads the model files of CTranslate2 (`model.bin`), which many packages carry Whisper in. It knows no architecture.

The format is defined by the library's writer: OpenNMT/CTranslate2, python/ctranslate2/specs/model_spec.py,
`ModelSpec._serialize`, binary version 6. All numbers are little-endian.

    version u32, name of the specification, revision u32
    number of variables u32; each: name, rank u8, sizes u32 each, dtype u8, bytes u32, data
    number of aliases u32; each: name, name of the variable
    a name is its length with the closing zero u16, then its bytes and the zero

    variables = read_variables(Path("model.bin"))
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ModelError

if TYPE_CHECKING:
    import torch

VERSION = 6
"""The binary version that is read."""

_DTYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
"""torch's name of each dtype, by its number."""


class _Reader:
    """A position in the bytes of a file."""

    def __init__(self, data: bytearray) -> None:
        self.data, self.position = data, 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(f"<{form}", self.data, self.position)
        self.position += struct.calcsize(form)
        return int(value)

    def name(self) -> str:
        text = self.bytes(self.number("H"))
        return text[:-1].decode()

    def bytes(self, size: int) -> bytearray:
        if self.position + size > len(self.data):
            raise struct.error(f"{size} bytes at {self.position} reach past its end")
        self.position += size
        return self.data[self.position - size : self.position]


def read_variables(path: Path) -> dict[str, torch.Tensor]:
    """Every variable of a model file in its own dtype; an alias is the same tensor."""
    reader = _Reader(bytearray(path.read_bytes()))
    try:
        version = reader.number("I")
        if version != VERSION:
            raise ValueError(f"binary version {version}")
        return _variables(reader)
    except (struct.error, ValueError, LookupError, RuntimeError) as error:
        message = f"{path.name} is not a CTranslate2 model of binary version {VERSION}: {error}."
        hint = "Use the file that the catalogue names."
        raise ModelError(message, hint=hint, file=path.name, error=str(error)) from error


def _variables(reader: _Reader) -> dict[str, torch.Tensor]:
    import torch

    reader.name(), reader.number("I")  # the specification and its revision
    variables: dict[str, torch.Tensor] = {}
    for _ in range(reader.number("I")):
        name = reader.name()
        shape = [reader.number("I") for _ in range(reader.number("B"))]
        dtype = getattr(torch, _DTYPES[reader.number("B")])
        variables[name] = torch.frombuffer(reader.bytes(reader.number("I")), dtype=dtype).reshape(shape)
    for _ in range(reader.number("I")):
        alias = reader.name()
        variables[alias] = variables[reader.name()]
    return variables
