"""Tensors of traced entries: weights and first values of states, by their names in the user's module.

tensors = tensors_of(entries, program)
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from ..compiler import Program, tensor_spec
from ..errors import ConfigError, UnsupportedDtypeError
from ..weights import DTYPES
from .entry import ROOT, Entry

_HELD = [dtype for dtype in DTYPES.values() if dtype != "float8_e8m0fnu"]
"""Of a program's tensors. Scales in powers of two are read from checkpoints only: safetensors loads none for torch."""


def require_dtypes(tensors: Mapping[str, torch.Tensor]) -> None:
    """Check that a program file can hold all tensors, including those that no operator computes with."""
    dtypes = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()}
    wrong = {name: dtype for name, dtype in dtypes.items() if dtype not in _HELD}
    if wrong:
        listing = ", ".join(f"{name} is {dtype}" for name, dtype in wrong.items())
        message = f"A compiled program holds {', '.join(_HELD)}, but {listing}."
        hint = "Convert the tensors, for example complex numbers to pairs with torch.view_as_real."
        raise UnsupportedDtypeError(message, hint=hint, dtypes=wrong)


def names_of(program: Program) -> list[str]:
    """Names of weights and states in the user's module."""
    weights = [name.removeprefix(f"{ROOT}.") for name in program.weights]
    return list(dict.fromkeys([*weights, *(name.rpartition(".")[0] for name in program.states)]))


def tensors_of(entries: Mapping[str, Entry], program: Program) -> dict[str, torch.Tensor]:
    """Weights and first values of states, by their names in the user's module."""
    names = names_of(program)
    values: dict[str, torch.Tensor] = {}
    different: dict[str, None] = {}
    for entry in entries.values():
        tensors = entry.tensors()
        for name in [name for name in names if name in tensors]:
            value = tensors[name].detach()
            known = values.setdefault(name, value)
            if known is not value and not _identical(known, value):
                different[name] = None
    if different:
        message = f"The buckets share their weights, but have different values in {', '.join(different)}."
        hint = "Return modules with the same weights for every bucket."
        raise ConfigError(message, hint=hint, tensors=list(different))
    return {name: values[name] for name in names}


def _identical(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two tensors hold the same bytes; NaNs are then equal too."""
    return tensor_spec(left) == tensor_spec(right) and torch.equal(_bytes(left), _bytes(right))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


@contextlib.contextmanager
def weights_file(tensors: Mapping[str, torch.Tensor], folder: Path) -> Iterator[Path]:
    """Write tensors to a safetensors file in `folder`, which is removed afterwards."""
    from safetensors.torch import save_file

    with tempfile.TemporaryDirectory(dir=folder, prefix=".weights-") as scratch:
        path = Path(scratch) / "weights.safetensors"
        # Each tensor in separate memory: the format has no views.
        save_file({name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}, path)
        yield path
