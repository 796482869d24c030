"""The shared object of the device "xla" in this process, and its cores: those of "neuron".

One process has the devices xla:0, xla:1 and so on for the cores that its environment leaves. A process of torchrun has
one, xla:0, on the core of its local rank, as under PJRT. Both devices charge one ledger of HBM, and a core is claimed
once for both.

    >>> from optimum_neuron.xla import library
    >>> library.device_count() > 0
    True
"""

from __future__ import annotations

import ctypes
import functools
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ..base import env
from ..device import build, callbacks, library as devices, numerics, placement, products
from ..errors import ConfigError
from .tape import Closed, Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_INT64 = ctypes.c_int64
_LISTENER = ctypes.CFUNCTYPE(_INT64, _INT64)
_SIGNATURES: devices.Signatures = {
    "xla_connect": (None, [ctypes.c_void_p]),
    "xla_set_meters": (None, [ctypes.c_void_p]),
    "xla_set_downcast": (None, [ctypes.c_int]),
    "xla_num_pending": (_INT64, []),
    "xla_close": (None, [ctypes.POINTER(Closed), ctypes.c_int]),
    "xla_tape": (ctypes.POINTER(_INT64), []),
    "xla_slot": (None, [_INT64, ctypes.POINTER(_INT64)]),
    "xla_string": (ctypes.c_char_p, [_INT64]),
    "xla_num_operators": (_INT64, []),
    "xla_operator_name": (ctypes.c_char_p, [_INT64]),
    "xla_operator_calls": (_INT64, [_INT64]),
    "xla_operator_reads": (_INT64, [_INT64]),
    "xla_reset_calls": (None, []),
    "xla_num_created": (_INT64, []),
    "xla_num_destroyed": (_INT64, []),
    "xla_num_live": (_INT64, []),
    "xla_take_traced": (None, [ctypes.POINTER(_INT64), ctypes.POINTER(_INT64)]),
    "xla_take_transfer": (ctypes.c_int, [ctypes.POINTER(Transfer)]),
}
"""C functions of csrc/xla/xla.cpp."""

_lock = threading.RLock()
_functions: ctypes.CDLL | None = None
_listeners: list[object] = []
_complete: Callable[[], None] | None = None


@functools.cache
def place() -> Path:
    """Path of the shared object, built or not; fixed at the first call, even if the environment changes."""
    return build.xla_library().record()


def is_loaded() -> bool:
    """Return whether the device is registered with torch."""
    return _functions is not None


def functions() -> ctypes.CDLL:
    """The C functions of the device; the first call builds it if need be, and registers it with torch."""
    global _functions
    with _lock:
        if _functions is None:
            meters = devices.load().neuron_meters(first_core())
            path = build.xla_library().ensure_built(place())
            _functions = devices.register(path, _answers, _SIGNATURES, meters=meters)
            numerics.apply()
            products.apply()
            _functions.xla_set_downcast(env.xla_downcast())
            if _complete is not None:
                _complete()
        return _functions


def follow_rank() -> None:
    """Let xla:0 be the core of the local rank, in a fork whose rank is set after the device was loaded."""
    if _functions is not None:
        _functions.xla_set_meters(devices.load().neuron_meters(first_core()))


def complete_with(complete: Callable[[], None]) -> None:
    """Set what completes the device once it is loaded."""
    global _complete
    _complete = complete
    if _functions is not None:
        complete()


def connect(*listeners: Callable[[int], int]) -> None:
    """Begin to record, with the functions of `struct Listeners` in csrc/xla/recorder.h."""
    functions_ = functions()
    kept = (_LISTENER * len(listeners))(*(devices.guarded(functions_, _LISTENER, one) for one in listeners))
    _listeners.append(kept)  # C++ keeps them for as long as the process lives
    functions_.xla_connect(kept)


def traced() -> tuple[int, int]:
    """Number of the operators since the last call, and their time in nanoseconds, which is estimated."""
    number, took_ns = _INT64(), _INT64()
    functions().xla_take_traced(ctypes.byref(number), ctypes.byref(took_ns))
    return number.value, took_ns.value


def transfers() -> Iterator[Transfer]:
    """Yield the copies between host and device since the last call."""
    transfer = Transfer()
    while functions().xla_take_transfer(ctypes.byref(transfer)):
        yield transfer


def first_core() -> int:
    """Index of the device "neuron" that is xla:0: the local rank's in a process of torchrun, else the first."""
    return placement.default_device()


def device_count() -> int:
    """Number of devices "xla" of this process.

    Raises:
        ConfigError: a variable names cores or an instance that do not exist.
    """
    return placement.device_count() if env.local_rank() is None else 1


def require_device(index: int) -> None:
    """Check that a device index exists in this process.

    Raises:
        ConfigError: there is no such device.
    """
    count = device_count()
    if not 0 <= index < count:
        message = f"xla:{index}: invalid device ordinal, this process has {count} of {placement.instance().name}."
        last = f"xla:0 to xla:{count - 1}" if count > 1 else "xla:0"
        hint = f"Use {last}, or start one process for each core with torchrun."
        raise ConfigError(message, hint=hint, device=index, count=count)


def _answers(functions: ctypes.CDLL) -> devices.Callbacks:
    """What C++ asks of Python for this device: the answers for the cores of "neuron"."""
    of_neuron = callbacks.answers(devices.load())

    def default_device() -> int:
        return 0

    def claim(index: int) -> int:
        require_device(index)
        return of_neuron["claim"](first_core() + index)

    def limit(index: int) -> int:
        return of_neuron["limit"](first_core() + index)

    def out_of_memory(index: int, size_bytes: int) -> int:
        functions.neuron_refuse(placement.out_of_memory(first_core() + index, size_bytes).encode())
        return 0

    def no_lanes(*_: int) -> int:
        return 0

    called: tuple[Callable[..., int], ...] = (device_count, default_device, claim, limit, out_of_memory)
    return {**{function.__name__: function for function in called}, "start_lanes": no_lanes, "stop_lanes": no_lanes}
