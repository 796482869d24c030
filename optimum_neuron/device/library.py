"""The shared object in this process: its C functions, its callbacks, and its loading.

It is loaded in `import torch` where it is in the cache, otherwise at the first use of the device (`first_use.py`).

    >>> from optimum_neuron.device import library
    >>> library.load().neuron_used_bytes(0) >= 0
    True
"""

from __future__ import annotations

import ctypes
import functools
import threading
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
    )


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "neuron_load": (ctypes.c_char_p, [ctypes.POINTER(_Host)]),
    "neuron_refuse": (None, [ctypes.c_char_p]),
    "neuron_current_device": (_INT64, []),
    "neuron_set_device": (None, [_INT64]),
    "neuron_used_bytes": (_INT64, [_INT64]),
    "neuron_set_limit": (None, [_INT64, _INT64]),
    "neuron_add_lane_event": (None, [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, _INT64, _INT64]),
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
"""C functions of csrc/neuron.cpp: result and arguments."""

_lock = threading.RLock()
_library: ctypes.CDLL | None = None
_host: _Host | None = None
_path: Path | None = None


def place() -> Path:
    """Path of the shared object, built or not; fixed at the first call, even if the environment changes."""
    global _path
    if _path is None:
        _path = build.cached_path()
    return _path


def is_loaded() -> bool:
    """Return whether the device is loaded, so that using it builds nothing."""
    return _library is not None


def load() -> ctypes.CDLL:
    """Return the shared object; the first call builds it if need be, loads it, and completes the device.

    Raises:
        LoweringError: it cannot be built or loaded.
    """
    global _library, _host
    if _library is not None:
        return _library
    with _lock:
        if _library is None:
            library = _opened(build.ensure_built(place()))
            # C++ keeps the callbacks for as long as the process lives.
            _host = _callbacks(library)
            reason = library.neuron_load(ctypes.byref(_host)).decode()
            if reason:
                hint = "Use no other custom device in this process, or report it."
                raise LoweringError(f"torch rejected the neuron device: {reason}.", hint=hint)
            _library = library
            _complete()
        return _library


def _opened(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        hint = "Remove it; the next use builds it again."
        raise LoweringError(f"Cannot load {path}: {error}.", hint=hint, path=str(path)) from error
    return library


def _complete() -> None:
    """Register the parts written in Python."""
    from . import amp, census, default_compile, first_use, flex_attention, safetensors_hook
    from .module import random

    first_use.stand_back()
    random.seed_loaded_device()
    amp.install()
    flex_attention.install()
    default_compile.install()
    safetensors_hook.install()
    census.install(load())


def _guarded(library: ctypes.CDLL, kind: Any, function: Any) -> Any:
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


def _callbacks(library: ctypes.CDLL) -> _Host:
    def placement() -> Any:
        # Imported at the first call: resolving the instance takes time.
        from . import placement

        return placement

    def device_count() -> int:
        return placement().device_count()

    def default_device() -> int:
        return placement().default_device()

    def claim(device: int) -> int:
        from . import numerics, products
        from .module import eager

        numerics.current()
        products.current()
        eager.begin()
        placement().attach_meter(device, library.neuron_used_bytes, library.neuron_set_limit)
        return placement().limit(device)

    def limit(device: int) -> int:
        return placement().limit(device)

    def out_of_memory(device: int, size_bytes: int) -> int:
        library.neuron_refuse(placement().out_of_memory(device, size_bytes).encode())
        return 0

    def start_lanes() -> int:
        from ..profiling import torch_profiler

        return torch_profiler.start()

    def stop_lanes(recording: int) -> int:
        from ..profiling import torch_profiler

        for event in torch_profiler.stop(recording):
            name = event.name.encode()
            library.neuron_add_lane_event(event.is_call, name, event.core_id, event.started_ns, event.ended_ns)
        return 0

    functions = (device_count, default_device, claim, limit, out_of_memory, start_lanes, stop_lanes)
    callbacks = [
        _guarded(library, field[1], function) for field, function in zip(_Host._fields_, functions, strict=False)
    ]
    of_python = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in _OF_PYTHON.values()]
    return _Host(*callbacks, *of_python)
