"""One safetensors file, mapped: tensors are views of the file, and neighbors can be taken as one view.

The format is public (8-byte little-endian header length, JSON header, data). The `safetensors` library reads
single tensors only; joining neighbors without a copy needs their offsets, hence this reader.

Weights that are copied are in huge pages, where the system has them. A decode step reads every weight once. On a
virtual machine with two cores of an AMD EPYC, reading 100 MB took 3.0 ms from huge pages, 3.6 to 4.4 from small ones,
and 3.0 from a mapped file, which Linux keeps in large pages by itself.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import mmap
import sys
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.core import TensorSpec
from ..errors import WeightsError
from ..files.plain_json import parse_json

if TYPE_CHECKING:
    import torch


MAX_HEADER_BYTES = 100_000_000
"""Limit of the safetensors format (its README, section Format)."""
_LARGEST, _MOST_DIMS = 2**48, 64
"""No file has more bytes, and no tensor of PyTorch more dimensions."""

# fmt: off
DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "I16": "int16",
    "I32": "int32", "I64": "int64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64",
}
# fmt: on
"""safetensors' dtype names to torch's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """Position of a tensor in the data part."""

    spec: TensorSpec
    """Shape and dtype."""
    begin: int
    """First byte."""
    end: int
    """One past the last byte."""


class MappedFile:
    """A safetensors file or buffer; `entries` lists its tensors."""

    def __init__(self, buffer: memoryview, name: str) -> None:
        self._buffer = buffer
        self.entries, self._data_begin = _parse_header(buffer, name)

    @classmethod
    def open(cls, path: Path) -> MappedFile:
        """Map a file privately: pages are shared with other readers until one of them writes."""
        try:
            with open(path, "rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            hint = "Check the path, or download the checkpoint again."
            message = f"{path} cannot be mapped: {error}."
            raise WeightsError(message, hint=hint, path=str(path), error=str(error)) from error
        file_of_path = cls(memoryview(mapped), str(path))
        _OPEN.add(file_of_path)
        return file_of_path

    def get(self, names: Sequence[str]) -> tuple[torch.Tensor, bool] | None:
        """The named tensors joined along dimension 0, and whether that took a copy; None when they are apart."""
        import torch

        entries = [self.entries[name] for name in names]
        first = entries[0].spec
        dtype = getattr(torch, first.dtype)
        if any(a.end != b.begin for a, b in zip(entries, entries[1:], strict=False)):
            return None
        if any(entry.spec.dtype != first.dtype for entry in entries):
            return None
        shape = (sum(entry.spec.shape[0] for entry in entries), *first.shape[1:]) if len(entries) > 1 else first.shape
        begin, end = self._data_begin + entries[0].begin, self._data_begin + entries[-1].end
        if begin == end:
            return torch.empty(shape, dtype=dtype), False
        with warnings.catch_warnings():
            # A NEFF is mapped for reading only, and torch warns of that; weights are never written.
            warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
            data = torch.frombuffer(self._buffer, dtype=torch.uint8, count=end - begin, offset=begin)
        unaligned = data.data_ptr() % dtype.itemsize != 0
        if unaligned:
            data = data.clone()  # the format does not promise alignment, torch needs it
        return data.view(dtype).view(shape), unaligned

    def drop_pages(self, names: Sequence[str]) -> None:
        """Let memory go in which tensors of the file are: whoever reads them again has them read from the file."""
        data = _address(self._buffer) + self._data_begin
        for entry in (self.entries[name] for name in names):
            self._drop(data + entry.begin, entry.end - entry.begin)

    def drop_pages_of(self, tensor: torch.Tensor) -> None:
        """Do the same for a tensor, if it is a view of the file."""
        self._drop(tensor.data_ptr(), tensor.nbytes)

    def _drop(self, address: int, size_bytes: int) -> None:
        mapping = self._buffer.obj
        if not isinstance(mapping, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
            return
        begin = address - _address(mapping)
        if begin not in range(len(mapping)):
            return
        first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE  # pages that the tensor has for itself
        length = (begin + size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
        if length > 0:
            mapping.madvise(mmap.MADV_DONTNEED, first, length)


_OPEN: weakref.WeakSet[MappedFile] = weakref.WeakSet()
"""Files that are mapped now."""


def drop_pages_of(tensor: torch.Tensor) -> None:
    """Let the memory of a tensor go if it is a view of a mapped file, as after a copy of it in another layout."""
    for file in list(_OPEN):
        file.drop_pages_of(tensor)


def _address(buffer: memoryview | mmap.mmap) -> int:
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
        return torch.frombuffer(buffer, dtype=torch.uint8).data_ptr()


def _parse_header(buffer: memoryview, name: str) -> tuple[dict[str, Entry], int]:
    size = int.from_bytes(buffer[:8], "little")
    if size > MAX_HEADER_BYTES or 8 + size > len(buffer):
        raise _broken(name, f"it has a header of {size} bytes in a file of {len(buffer)}")
    try:
        header = parse_json(bytes(buffer[8 : 8 + size]))
        header.pop("__metadata__", None)
        entries = {key: _entry(name, key, value) for key, value in header.items()}
    except WeightsError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _broken(name, f"its header cannot be read ({type(error).__name__}: {error})") from error
    _require_covered(name, entries, len(buffer) - 8 - size)
    return entries, 8 + size


def _entry(name: str, key: str, value: Any) -> Entry:
    """Check and return one tensor of a header; there may be a hundred thousand, so this is no table of types."""
    shape, offsets, dtype = value["shape"], value["data_offsets"], value["dtype"]
    if any(type(number) is not int or not 0 <= number <= _LARGEST for number in (*shape, *offsets)):
        raise _broken(name, f"tensor {key} has shape {shape!r:.100} and offsets {offsets!r:.100}")
    if len(shape) > _MOST_DIMS:
        raise _broken(name, f"tensor {key} has {len(shape)} dimensions")
    known = DTYPES.get(dtype)
    if known is None:
        raise _broken(name, f"tensor {key} has the unknown dtype {dtype!r:.100}")
    spec = TensorSpec(shape=tuple(shape), dtype=known)
    begin, end = offsets
    if end - begin != spec.size_bytes:
        raise _broken(name, f"tensor {key} at bytes {begin} to {end} has another size than its shape says")
    return Entry(spec=spec, begin=begin, end=end)


def _require_covered(name: str, entries: Mapping[str, Entry], data_bytes: int) -> None:
    """Check that tensors follow each other without overlaps and holes, as the format says."""
    place = 0
    for key, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != place:
            problem = f"tensor {key} begins at byte {entry.begin}, but the one before it ends at {place}"
            raise _broken(name, problem)
        place = entry.end
    if place != data_bytes:
        raise _broken(name, f"its tensors have {place} of {data_bytes} bytes")


def _broken(name: str, problem: str) -> WeightsError:
    message = f"{name} is not a complete safetensors file: {problem}."
    return WeightsError(message, hint="Download or export the checkpoint again.", path=name, problem=problem)


HUGE_PAGE_BYTES = 2 * 1024**2
_MADV_HUGEPAGE = 14  # of Linux; Python's `mmap` has it for its own mappings only


def empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return an uninitialized tensor."""
    import torch

    tensor = torch.empty(tuple(shape), dtype=dtype)
    start = tensor.data_ptr()
    first = -(-start // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    length = (start + tensor.nbytes) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES - first
    if length > 0 and sys.platform == "linux":
        # Advice: a kernel without huge pages refuses it, and nothing else changes.
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), _MADV_HUGEPAGE)
    return tensor


def concatenate(tensors: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    """Return tensors joined along a dimension, in the dtype that holds all of theirs."""
    import torch

    shape = list(tensors[0].shape)
    shape[dim] = sum(tensor.shape[dim] for tensor in tensors)
    dtype = functools.reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
    with torch.no_grad():
        return torch.cat(list(tensors), dim, out=empty(shape, dtype))


def convert(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the tensor contiguous and in a dtype: itself, or a copy."""
    import torch

    if tensor.dtype == dtype and tensor.is_contiguous():
        return tensor
    with torch.no_grad():
        return empty(tensor.shape, dtype).copy_(tensor)
