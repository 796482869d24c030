"""Stands in for a shared object that is not built yet, until the first use of the device.

Kernels in Python for the operators that make a first tensor, and wrappers of torch's functions for accelerators. Each
loads the device, which registers over the kernels and removes the wrappers, and then makes the original call.

Autograd makes its queues of devices at the first backward of a process, which may be on the CPU and before the first
use of the device. A guard in Python, which the device's own replaces, lets it count one core; torch has none for more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import library

_FACTORIES = ("empty.memory_format", "empty_strided")
_ANSWERED_WITHOUT_DEVICE = ("_accelerator_getAccelerator",)
_kept: list[Any] = []
_wrapped: dict[str, Callable[..., Any]] = {}


def stand_in() -> None:
    """Wait for the first use."""
    import torch

    from ..upstream.torch import C, DeviceGuard, register_python_privateuseone_device_guard

    class Guard(DeviceGuard):
        def type_(self) -> Any:
            return torch.autograd.DeviceType.PrivateUse1

    _kept.append(guard := Guard())
    register_python_privateuseone_device_guard(guard)
    registrations = torch.library.Library("aten", "IMPL")
    for name in _FACTORIES:
        registrations.impl(name, _loading(functools.partial(_operator, name)), "PrivateUse1")
    # A kernel may not be freed while it runs, and nothing reaches it once the device is loaded.
    _kept.append(registrations)
    for name in dir(C):
        if name.startswith("_accelerator_") and name not in _ANSWERED_WITHOUT_DEVICE:
            _wrapped[name] = getattr(C, name)
            setattr(C, name, _loading(functools.partial(_wrapped.__getitem__, name)))
    name = "_get_accelerator"  # of `torch.get_device_module()`, which transformers' continuous batching calls
    _wrapped[name] = getattr(C, name)
    setattr(C, name, _accelerator)


def stand_back() -> None:
    """Take the wrappers away; the device is loaded."""
    from ..upstream.torch import C

    for name, function in _wrapped.items():
        setattr(C, name, function)


def _accelerator(check: bool | None = None) -> Any:
    import torch

    return torch.device("neuron")


def _operator(name: str) -> Any:
    import torch

    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _loading(find: Callable[[], Any]) -> Callable[..., Any]:
    def call(*args: object, **kwargs: object) -> Any:
        library.load()
        return find()(*args, **kwargs)

    return call
