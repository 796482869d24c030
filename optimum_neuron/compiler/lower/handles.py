"""Tensors as handles of AOTInductor's C interface, for functions that are called with ctypes.

Source: torch 2.13, torch/csrc/inductor/aoti_torch/c/shim.h.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ...upstream.torch import aoti

Handle = ctypes.c_void_p

_get_pointer = ctypes.PYFUNCTYPE(Handle, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, Handle, ctypes.c_char_p, Handle)(("PyCapsule_New", ctypes.pythonapi))


class Handles:
    """New handles of tensors, deleted with this object."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.array: Any = (Handle * len(tensors))(*handles_of(tensors))
        """As C functions take them."""

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # When the interpreter exits, torch's module may be gone, and so may the globals of this one.
        if not is_finalizing():
            tensors_of(self.array)


def handles_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return a new handle for each tensor; whoever has it must give it back, here to `tensors_of`."""
    return [_get_pointer(capsule, None) for capsule in aoti.unsafe_alloc_void_ptrs_from_tensors(list(tensors))]


def tensors_of(handles: Iterable[int | None]) -> list[torch.Tensor]:
    """Return the tensors, and delete the handles."""
    return aoti.alloc_tensors_by_stealing_from_void_ptrs([_new_capsule(handle, None, None) for handle in handles])
