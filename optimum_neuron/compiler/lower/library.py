"""Compiled functions in this process: loaded from the store, called with handles of tensors.

A function keeps nothing between calls and runs without Python's lock, so threads may call it at once.
`runtime/segments.py` runs many in one call; `CompiledFunction.__call__` runs one, with tensors.

    function = load_function(locate(record), num_results=1)
    results = function([x, weight])
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch

from ...errors import LoweringError
from ...files.shared_objects import SharedObject
from .handles import Handle, Handles, tensors_of


class CompiledFunction:
    """One subprogram as machine code."""

    def __init__(self, library: ctypes.CDLL, name: str, num_results: int, *, any_num_threads: bool) -> None:
        self.library = library
        """The file that it is in, which also has `run_steps`."""
        self.name = name
        """Name of the subprogram."""
        self.num_results = num_results
        """Tensors that it returns."""
        self.any_num_threads = any_num_threads
        """Whether it may run on fewer threads than it was compiled for."""
        self.function = getattr(library, name)
        """The C function, which takes two arrays of handles."""

    @property
    def address(self) -> int:
        """Address of its code."""
        return _address(self.function)

    @property
    def address_of_error(self) -> int:
        """Address of the function that returns the last error of the calling thread."""
        return _address(self.library.last_error)

    def __call__(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run it; mutated arguments change in place."""
        handles, results = Handles(arguments), (Handle * self.num_results)()
        with torch.no_grad():
            status = self.function(handles.array, results)
        if status:
            raise self.error(self.library.last_error())
        return tensors_of(results)

    def error(self, message: bytes) -> LoweringError:
        """Return the error of a call that failed."""
        error = message.decode()
        return LoweringError(f"Compiled host code of {self.name} failed: {error}", function=self.name, error=error)


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


@functools.cache
def _opened(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    library.last_error.restype = ctypes.c_char_p
    pointer = ctypes.POINTER(Handle)
    library.run_steps.argtypes = [ctypes.c_void_p, ctypes.c_int32, pointer]
    library.release.argtypes, library.release.restype = [pointer, ctypes.c_int32], None
    return library


def load_function(stored: SharedObject, num_results: int, *, any_num_threads: bool = True) -> CompiledFunction:
    """Load a compiled function, which `locate` of `lower.py` found; see `CompiledFunction`."""
    try:
        library = _opened(str(stored.library))
        return CompiledFunction(library, stored.function, num_results, any_num_threads=any_num_threads)
    except (OSError, AttributeError) as error:
        message = f"Host code {stored.library} cannot be loaded: {error}."
        hint = "Delete the file, so that it is compiled again."
        raise LoweringError(message, hint=hint, library=str(stored.library)) from error
