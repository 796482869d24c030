"""Tensors of a GGUF file under the names of a transformers checkpoint, with the numbers of a scheme where it has them.

    q8_0    blocks of 32: a float16 scale, then 32 int8               int8-g32
    q4_0    blocks of 32: a float16 scale, then 16 bytes              int4-g32, whose layout is the same

The package gguf dequantizes; numbers of these two forms are stored in a program as they are. llama.cpp stores rows of
Llama's queries and keys in another order, by halves of a head; rows of blocks are put back whole, so no number changes.

Shape legend: O outputs, I inputs, G groups of inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..base.core import TensorSpec
from .gguf_file import GgufFile
from .mapped import concatenate
from .schemes import RUN, Part, Scheme

if TYPE_CHECKING:
    import torch

GGUF_SCHEMES = {"q8_0": "int8-g32", "q4_0": "int4-g32"}
"""The scheme that has the numbers of a form."""

_FLOATS = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64"}
_SCALE_BYTES = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class GgufName:
    """Where the file has a tensor of a checkpoint."""

    name: str
    num_heads: int = 0
    """Heads whose rows are stored by halves; 0: rows are in order."""


class GgufSource:
    """A GGUF file by the names of a checkpoint."""

    def __init__(self, file: GgufFile, names: Mapping[str, GgufName]) -> None:
        self._file = file
        self._names = {name: place for name, place in names.items() if place.name in file.entries}

    @property
    def origin(self) -> str:
        """Source of the tensors, for messages."""
        return self._file.name

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Shape and dtype of every tensor, of quantized ones as they are after dequantizing."""
        entries = {name: self._file.entries[place.name] for name, place in self._names.items()}
        return {
            name: TensorSpec(shape=entry.shape, dtype=_FLOATS.get(entry.type_name, "float32"))
            for name, entry in entries.items()
        }

    def scheme_of(self, name: str) -> str | None:
        """Return the scheme that has the numbers of a tensor, or None."""
        return GGUF_SCHEMES.get(self._file.entries[self._names[name].name].type_name)

    def join(self, names: Sequence[str]) -> tuple[torch.Tensor, bool]:
        """Tensors joined along dimension 0, dequantized, and whether that took a copy."""
        if len(names) > 1:
            return concatenate([self._tensor(name).float() for name in names]), True
        tensor, stored = self._tensor(names[0]), self._file.rows(self._names[names[0]].name)
        return tensor, tensor.data_ptr() != stored.data_ptr()

    def parts(self, name: str, scheme: Scheme) -> dict[Part, torch.Tensor] | None:
        """Return the parts of a tensor in a scheme, or None if it has to be rounded to the scheme."""
        return self._stored(name) if self.scheme_of(name) == scheme.name else None

    def drop_pages(self, names: Sequence[str]) -> None:
        """Pages of the file are clean, so the system takes them back when it needs memory."""

    def _rows(self, name: str) -> torch.Tensor:
        """Bytes of each output, in the order of the checkpoint."""
        place = self._names[name]
        rows = self._file.rows(place.name)
        if not place.num_heads:
            return rows
        rows = rows.view(self._file.entries[place.name].shape[0], -1)
        halves = rows.view(place.num_heads, -1, 2, rows.shape[1])
        return halves.transpose(1, 2).reshape(rows.shape)

    def _stored(self, name: str) -> dict[Part, torch.Tensor]:
        """Scales and numbers of a tensor whose form a scheme has."""
        import torch

        scheme = Scheme.parse(GGUF_SCHEMES[self._file.entries[self._names[name].name].type_name])
        rows = self._rows(name)
        width = _SCALE_BYTES + (RUN if scheme.kind == "int8" else RUN // 2)
        blocks = rows.unflatten(-1, (-1, width))
        scale = blocks[..., :_SCALE_BYTES].contiguous().view(torch.float16).flatten(-2)
        values = blocks[..., _SCALE_BYTES:].flatten(-2)
        if scheme.kind == "int8":
            return {"values": values.view(torch.int8), "scale": scale.float()}
        return {"values": values, "scale": scale}

    def _tensor(self, name: str) -> torch.Tensor:
        import torch
        from gguf import GGMLQuantizationType, dequantize

        entry, rows = self._file.entries[self._names[name].name], self._rows(name)
        if entry.type_name in _FLOATS:
            dtype = getattr(torch, _FLOATS[entry.type_name])
            is_aligned = rows.data_ptr() % dtype.itemsize == 0
            return (rows if is_aligned else rows.clone()).view(-1).view(dtype).view(entry.shape)
        numbers = dequantize(rows.numpy(), GGMLQuantizationType(entry.type_number))
        return torch.from_numpy(numbers).view(entry.shape)
