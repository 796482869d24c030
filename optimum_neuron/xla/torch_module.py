"""`torch.xla`: the device module that torch's own code looks for, for example to keep random states.

import torch
torch.get_device_module("xla").device_count()
"""

from __future__ import annotations

from typing import Any

import torch

from ..device import library as _devices, placement
from . import library as _library
from .library import device_count, require_device

_SEED_MASK = 2**64 - 1

Device = Any
"""An index, a name such as "xla:0", a `torch.device`, or None for the current device."""


def is_available() -> bool:
    """Return whether the environment leaves a core to this process."""
    return device_count() > 0


def is_initialized() -> bool:
    """Return True: the module is registered with the device."""
    return True


_initialized = True


def current_device() -> int:
    """Index of the current device; a thread starts with 0."""
    return max(_library.functions().neuron_current_device(), 0)


def set_device(device: Device) -> None:
    """Make a device current in this thread.

    Raises:
        ConfigError: there is no such device.
    """
    _library.functions().neuron_set_device(_index(device))


class device:  # noqa: N801  (torch's name)
    """Make a device current for a block; None or a negative index changes nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None else device if isinstance(device, int) and device < 0 else _index(device)
        """Index of the device."""

    def __enter__(self) -> None:
        self._before = current_device()
        if self.idx >= 0:
            set_device(self.idx)

    def __exit__(self, *error: object) -> None:
        set_device(self._before)


def synchronize(device: Device = None) -> None:
    """Return at once: work is done when a call returns."""
    _index(device)


def manual_seed(seed: int) -> None:
    """Seed the current device."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every device."""
    _library.functions().neuron_seed_all(int(seed) & _SEED_MASK)


def initial_seed() -> int:
    """The seed of the current device."""
    return _generator(None).initial_seed()


def get_rng_state(device: Device = None) -> torch.Tensor:
    """State of a device's generator: 16 bytes, seed and offset."""
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: Device = None) -> None:
    """Set the state of a device's generator, as returned by `get_rng_state`."""
    _generator(device).set_state(new_state)


def memory_allocated(device: Device = None) -> int:
    """Bytes of the tensors on the core of a device, those of the device "neuron" included."""
    return _library.functions().neuron_used_bytes(_index(device))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total bytes of the core of a device."""
    core = _library.first_core() + _index(device)
    limit = placement.limit(core)
    return limit - _devices.load().neuron_used_bytes(core), limit


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Dtypes of autocast."""
    return [torch.bfloat16, torch.float16]


def _is_in_bad_fork() -> bool:
    return placement.is_in_bad_fork()


def _index(device: Device) -> int:
    if device is None:
        return current_device()
    index = device if isinstance(device, int) else torch.device(device).index
    index = current_device() if index is None else index
    require_device(index)
    return index


def _generator(device: Device) -> torch.Generator:
    return torch.ops.xla_sim.default_generator(_index(device))
