"""The shared object in this process: its C functions, and its loading.

It is loaded in `import torch` where it is in the cache, otherwise at the first use of the device (`first_use.py`).
This module knows no other part of the device: `import torch` connects what C++ asks of Python (`callbacks.py`) and what
completes the device once it is loaded (`parts.py`).

    >>> from optimum_neuron.device import library
    >>> library.load().neuron_used_bytes(0) >= 0
    True
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import LoweringError, NeuronError
from . import build

_REFUSED = -1
_ASK = ctypes.CFUNCTYPE(ctypes.c_int64)
_ASK_OF_DEVICE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
_ASK_FOR_BYTES = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_INT64 = ctypes.c_int64

_OF_PYTHON = {
    "holds_interpreter": "PyGILState_Check",
    "leave_interpreter": "PyEval_SaveThread",
    "enter_interpreter": "PyEval_RestoreThread",
}
"""Functions of Python's C API that C++ calls directly."""


class _Host(ctypes.Structure):
    """`struct Host` of csrc/host.h."""

    _fields_ = (
        ("device_count", _ASK),
        ("default_device", _ASK),
        ("claim", _ASK_OF_DEVICE),
        ("limit", _ASK_OF_DEVICE),
        ("out_of_memory", _ASK_FOR_BYTES),
        ("start_lanes", _ASK),
        ("stop_lanes", _ASK_OF_DEVICE),
        *((name, ctypes.c_void_p) for name in _OF_PYTHON),
        ("meters", ctypes.c_void_p),
    )


Signatures = Mapping[str, tuple[Any, list[Any]]]
"""Result and arguments of C functions, by name."""

_SIGNATURES: Signatures = {
    "neuron_load": (ctypes.c_char_p, [ctypes.POINTER(_Host)]),
    "neuron_refuse": (None, [ctypes.c_char_p]),
    "neuron_current_device": (_INT64, []),
    "neuron_set_device": (None, [_INT64]),
    "neuron_used_bytes": (_INT64, [_INT64]),
    "neuron_set_limit": (None, [_INT64, _INT64]),
    "neuron_meters": (ctypes.c_void_p, [_INT64]),
    "neuron_elapsed_ms": (ctypes.c_double, [_INT64, _INT64]),
    "neuron_seed_all": (None, [ctypes.c_uint64]),
    "neuron_set_for_device": (ctypes.c_int, [ctypes.c_int]),
    "neuron_set_products": (None, [_INT64, _INT64]),
    "neuron_set_numerics": (None, [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_uint64]),
    "neuron_watch_operators": (None, [ctypes.c_int]),
    "neuron_take_operators": (_INT64, [ctypes.POINTER(_INT64), _INT64]),
    "neuron_take_lost_operators": (_INT64, []),
    "neuron_operator_kind": (ctypes.c_char_p, [_INT64]),
    "neuron_set_adaptive_eager": (None, [ctypes.c_int]),
    "neuron_adaptive_eager": (ctypes.c_int, []),
    "neuron_drain_queues": (None, []),
    "neuron_eager_statistics": (ctypes.c_char_p, [_INT64]),
    "neuron_reset_eager_statistics": (None, [_INT64]),
}
"""C functions of csrc/exports.h."""
_OF_NEURON: Signatures = {
    "neuron_add_lane_event": (None, [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, _INT64, _INT64])
}
"""Those of csrc/neuron.cpp."""

Callbacks = Mapping[str, Callable[..., int]]
"""Functions that C++ calls, by their names in `struct Host`."""

_lock = threading.RLock()
_library: ctypes.CDLL | None = None
_loaded: list[ctypes.CDLL] = []
_hosts: list[_Host] = []
_path: Path | None = None
_answers: Callable[[ctypes.CDLL], Callbacks] | None = None
_complete: Callable[[ctypes.CDLL], None] | None = None


def place() -> Path:
    """Path of the shared object, built or not; fixed at the first call, even if the environment changes."""
    global _path
    if _path is None:
        _path = build.cached_path()
    return _path


def connect(answers: Callable[[ctypes.CDLL], Callbacks], complete: Callable[[ctypes.CDLL], None]) -> None:
    """Set what loading needs of other parts of the device; `import torch` does so.

    Args:
        complete: registers the parts written in Python; called once the shared object is loaded.
    """
    global _answers, _complete
    _answers, _complete = answers, complete


def is_loaded() -> bool:
    """Return whether the device is loaded, so that using it builds nothing."""
    return _library is not None


def loaded() -> tuple[ctypes.CDLL, ...]:
    """Shared objects that this process has loaded: that of "neuron" first, then that of "xla"."""
    return tuple(_loaded)


def load() -> ctypes.CDLL:
    """Return the shared object; the first call builds it if need be, loads it, and completes the device.

    Raises:
        LoweringError: it cannot be built or loaded, or torch has not registered the device.
    """
    global _library
    if _library is not None:
        return _library
    import torch  # noqa: F401  (its import connects the device)

    with _lock:
        if _answers is None or _complete is None:
            hint = "print(optimum_neuron.device.status()) says why."
            raise LoweringError("The neuron device is not registered with torch.", hint=hint)
        if _library is None:
            _library = register(build.ensure_built(place()), _answers, _OF_NEURON)
            _complete(_library)
        return _library


def register(
    path: Path, answers: Callable[[ctypes.CDLL], Callbacks], signatures: Signatures, *, meters: int | None = None
) -> ctypes.CDLL:
    """Load a shared object of the device's sources, which registers its device with torch.

    Args:
        signatures: its C functions besides those of csrc/exports.h.
        meters: address of the meters of cores (`neuron_meters`), where it shares them with another device.
    """
    library = _opened(path, {**_SIGNATURES, **signatures})
    host = _filled(library, answers(library), meters)
    # C++ keeps the callbacks for as long as the process lives.
    _hosts.append(host)
    if reason := library.neuron_load(ctypes.byref(host)).decode():
        hint = "Use no other custom device in this process, or report it."
        raise LoweringError(f"torch rejected {path.name}: {reason}.", hint=hint, path=str(path))
    _loaded.append(library)
    return library


def _opened(path: Path, signatures: Signatures) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in signatures.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        hint = "Remove it; the next use builds it again."
        raise LoweringError(f"Cannot load {path}: {error}.", hint=hint, path=str(path)) from error
    return library


def guarded(library: ctypes.CDLL, kind: Any, function: Any) -> Any:
    """Wrap a callback: an exception cannot cross the border, so its text is left there and C++ raises it again."""

    @functools.wraps(function)
    def call(*arguments: int) -> int:
        try:
            return function(*arguments)
        except Exception as error:
            text = str(error) if isinstance(error, NeuronError) else f"{type(error).__name__}: {error}"
            library.neuron_refuse(text.encode())
            return _REFUSED

    return kind(call)


def _filled(library: ctypes.CDLL, answers: Callbacks, meters: int | None) -> _Host:
    asked = [field for field in _Host._fields_ if field[0] not in (*_OF_PYTHON, "meters")]
    callbacks = [guarded(library, field[1], answers[field[0]]) for field in asked]
    of_python = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in _OF_PYTHON.values()]
    return _Host(*callbacks, *of_python, meters)
