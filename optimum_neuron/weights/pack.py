"""Write a checkpoint as one safetensors file in which tensors that are used joined are neighbors.

The file is a plain checkpoint under its own names: any reader can load it. Only the order of the data differs,
so that a fused weight is a view of the file. The `safetensors` library sorts tensors by itself, hence this
writer.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from ..base.core import TensorSpec
from ..errors import CacheError
from ..files.atomic import replacing
from .bind import Sources, is_float
from .checkpoint import TensorSource
from .mapped import DTYPES
from .quantized import recipe_of

_NAMES = {torch_name: name for name, torch_name in DTYPES.items()}
_ALIGNMENT = 64


def pack_checkpoint(
    checkpoint: TensorSource, specs: Mapping[str, TensorSpec], sources: Sources, path: Path, *, dtype: str
) -> int:
    """Write the tensors that a program uses to `path`; return the file's size in bytes.

    Floating-point tensors are written in `dtype`, except for scales of quantized weights. The file
    appears whole or not at all.
    """
    import torch

    order = list(dict.fromkeys(source for name in specs for source in sources[name]))
    available = checkpoint.specs
    stored = {
        name: dataclasses.replace(available[name], dtype=dtype) if _is_cast(name, available[name]) else available[name]
        for name in order
    }
    header = _header(stored)
    size_bytes = 8 + len(header) + sum(spec.size_bytes for spec in stored.values())
    with replacing(path, needed_bytes=size_bytes, error=CacheError) as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for name in order:
            tensor = checkpoint.join([name])[0].to(getattr(torch, stored[name].dtype)).contiguous()
            file.write(memoryview(tensor.view(-1).view(torch.uint8).numpy()))
    return size_bytes


def _is_cast(name: str, spec: TensorSpec) -> bool:
    return is_float(spec) and recipe_of(name) is None


def _header(specs: Mapping[str, TensorSpec]) -> bytes:
    entries, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, spec in specs.items():
        end = offset + spec.size_bytes
        entries[name] = {"dtype": _NAMES[spec.dtype], "shape": list(spec.shape), "data_offsets": [offset, end]}  # type: ignore[dict-item]
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    return text + b" " * (-(len(text) + 8) % _ALIGNMENT)
