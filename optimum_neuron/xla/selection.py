"""Devices of this process by torch_xla's functions: `torch_xla.device()`, `xm.xla_device()`, `xm.get_memory_info()`."""

from __future__ import annotations

import functools
import logging
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..base.wording import counted
from ..device import placement
from ..errors import ConfigError, ModelError
from . import library, torch_module
from .device import enable
from .ordinals import global_device_count, global_ordinal, world_size

logger = logging.getLogger(__name__)

HARDWARE = "NEURON"
"""Type of the device, as PJRT_DEVICE names it."""


def device(index: int | None = None) -> torch.device:
    """Return a device "xla" of this process, and make it current.

    Args:
        index: its number; None: the current one, "xla:0" at first.

    Raises:
        IndexError: the process has no such device.
    """
    enable()
    if index is None:
        return torch.device("xla", torch_module.current_device())
    count = library.device_count()
    if not 0 <= index < count:
        raise IndexError(f"Device index {index} is out of range: this process has {counted(count, 'device')}.")
    torch_module.set_device(index)
    return torch.device("xla", index)


def supported_devices(max_devices: int | None = None) -> list[str]:
    """Return the names of the devices of this process, such as "xla:0".

    Args:
        max_devices: the most names; None: all.
    """
    return [f"xla:{index}" for index in range(library.device_count())][: max_devices or None]


def devices() -> list[torch.device]:
    """Return the devices of this process."""
    return [torch.device(name) for name in supported_devices()]


def real_devices(devices: Sequence[str | torch.device] | None = None) -> list[str]:
    """Return names of devices with their type, such as "NEURON:0".

    Args:
        devices: devices "xla"; None: all of this process.

    Raises:
        RuntimeError: the name of one is not like "xla:0".
    """
    return [f"{HARDWARE}:{global_ordinal() + _index(one)}" for one in devices or supported_devices()]


def device_count() -> int:
    """Return the number of devices of this process."""
    return library.device_count()


def device_hardware(device: str | torch.device) -> str:
    """Return "NEURON" for a device "xla".

    Args:
        device: such as "xla:0".

    Raises:
        RuntimeError: its name is not like "xla:0".
    """
    return real_devices([device])[0].partition(":")[0]


def device_kind(device: str | torch.device | None = None) -> str:
    """Return the core of a device: NC_v2, NC_v3, or NC_v3d for two physical cores in one logical core.

    Args:
        device: such as "xla:0"; None: the current device.
    """
    if device is not None:
        _index(device)
    target = placement.target()
    doubled = "d" if target.chip.default_lnc > 1 else ""
    return f"NC_v{target.core.generation}{doubled}"


def device_attributes(device: str) -> dict[str, object]:
    """Return facts of a device: its core, and the instance type.

    Args:
        device: such as "xla:0" or "NEURON:0".
    """
    index = int(device.rpartition(":")[2])
    return {"core": index, "kind": device_kind(), "instance": placement.instance().name}


def all_device_attributes() -> list[dict[str, object]]:
    """Return facts of the devices of all processes."""
    return [device_attributes(f"{HARDWARE}:{index}") for index in range(global_device_count())]


def memory_info(device: str | torch.device | None = None) -> dict[str, int]:
    """Return used and total bytes of the memory of a device.

    Args:
        device: such as "xla:0"; None: the current device.
    """
    free, total = torch_module.mem_get_info(device)
    return {"bytes_used": total - free, "bytes_limit": total}


def replication_devices(local_devices: Sequence[str | torch.device] | None = None) -> list[str]:
    """Return the devices of all processes that a tensor can be on.

    Args:
        local_devices: those of this process; None: all of them.

    Raises:
        RuntimeError: some of its devices are missing.
    """
    given, available = len(local_devices or supported_devices()), len(supported_devices())
    if given != available:
        raise RuntimeError(f"Data cannot be replicated on {given} of {counted(available, 'device')} of this process.")
    return [f"{HARDWARE}:{index}" for index in range(global_device_count())]


def set_replication(device: str | torch.device, devices: Sequence[str | torch.device] | None) -> None:
    """Choose a device for this process: accelerate calls it before training.

    Args:
        device: the device that becomes current.
        devices: devices of this process that hold copies of a model; None or empty: one.

    Raises:
        RuntimeError: some of its devices are missing.
    """
    if devices and world_size() > 1:
        replication_devices(devices)
    torch_module.set_device(device)


def wait_device_ops(devices: Sequence[str] = ()) -> None:
    """Return when work on devices is done.

    Args:
        devices: their names; empty: all.
    """
    for name in devices or supported_devices():
        torch_module.synchronize(name)


def _index(device: str | torch.device) -> int:
    match = re.fullmatch(r"xla:(\d+)", str(device))
    if match is None:
        raise RuntimeError(f"Invalid device format: {device}. Devices are xla:0, xla:1, and so on.")
    return int(match[1])


def device_type() -> str:
    """Return "NEURON"."""
    return HARDWARE


def set_device_type(pjrt_device: str) -> None:
    """Check the type of the devices, which scripts choose before their first use.

    Args:
        pjrt_device: "NEURON".

    Raises:
        ConfigError: another type.
    """
    if pjrt_device != HARDWARE:
        message = f"There is no PJRT device {pjrt_device}."
        raise ConfigError(message, hint='Use "NEURON".', device=pjrt_device)


def using_pjrt() -> bool:
    """Return True: older scripts ask it."""
    return True


def is_bf16_supported() -> bool:
    """Return True: every NeuronCore computes in bfloat16."""
    return True


def is_spmd() -> bool:
    """Return False: one process drives one device."""
    return False


def use_spmd(auto: bool = False) -> None:
    """Raise: one process drives one device.

    Args:
        auto: let the compiler divide tensors.

    Raises:
        ModelError: always.
    """
    hint = "Start one process for each core with `torchrun --nproc_per_node=N`, without `use_spmd`."
    raise ModelError("SPMD, in which one process drives all devices, is not supported.", hint=hint, auto=auto)


def renamed(old: str, new: str, function: Callable[..., Any], *, release: str | None = None) -> Callable[..., Any]:
    """Return a function under an old name, which says its new one at the first call.

    Args:
        old: the old name, with its module.
        new: the new name, with its module.
        function: what it calls.
        release: release of torch_xla that removed the old name; None: none did, and the warning is for developers.
    """

    @functools.cache
    def say() -> None:
        if release is None:
            warnings.warn(f"{old} is deprecated. Use {new} instead.", DeprecationWarning, stacklevel=3)
        else:
            logger.warning("%s was removed in release %s of torch_xla. Use %s instead.", old, release, new)

    @functools.wraps(function)
    def call(*args: object, **options: object) -> Any:
        say()
        return function(*args, **options)

    return call
