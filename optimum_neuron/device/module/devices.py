"""Available devices, the current one, and their properties."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch

from ...base import env
from .. import library

Device = Any
"""An index, a name such as "neuron:1", a `torch.device`, or None for the current device."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeuronDeviceProperties:
    """Properties of one device; everything is simulated."""

    name: str
    """Family: "trn1", "trn1n", "inf2", "trn2" or "trn3"."""
    instance: str
    """For example "inf2.xlarge"."""
    neuron_core: str
    """For example "NeuronCore-v2"."""
    major: int
    """Generation of the core, 2 for NeuronCore-v2."""
    minor: int
    """Always 0."""
    total_memory: int
    """HBM of the core in bytes."""
    multi_processor_count: int
    """Physical cores in it."""


def is_available() -> bool:
    """Return whether the device can be used: it is built or can be, and the environment leaves a core. Never raises."""
    return _can_be_built(env.machine_variables()) or (library.is_loaded() and _has_devices())


@functools.lru_cache(maxsize=16)
def _can_be_built(variables: tuple[str | None, ...]) -> bool:
    """Look once for each environment: torch asks at every operator on fake tensors."""
    from ...compiler.lower import probe_compiler

    return _has_devices() and probe_compiler() is not None


def _has_devices() -> bool:
    from ...errors import ConfigError

    try:
        return device_count() > 0
    except ConfigError:
        return False


def is_initialized() -> bool:
    """Return whether a device is in use or chosen: a claimed core, `set_device` in this thread, or LOCAL_RANK.

    torch's fake tensors take `current_device()` then, and device 0 otherwise.
    """
    from ...base import env

    if _claimed():
        return True
    is_chosen = library.is_loaded() and library.load().neuron_current_device() >= 0
    return not _is_in_bad_fork() and (is_chosen or env.local_rank() is not None)


def init() -> None:
    """Build and load the device if that is still to be done; the first use does the same."""
    library.load()


_lazy_init = init


def device_count() -> int:
    """Number of devices: cores that NEURON_RT_VISIBLE_CORES or NEURON_RT_NUM_CORES leave, or all of the instance.

    Raises:
        ConfigError: a variable names cores or an instance that do not exist.
    """
    from .. import placement

    return placement.device_count()


def current_device() -> int:
    """Index of the current device; a thread starts with LOCAL_RANK, or 0."""
    from .. import placement

    index = library.load().neuron_current_device()
    return index if index >= 0 else placement.default_device()


def set_device(device: Device) -> None:
    """Make a device current in this thread; a negative index does nothing."""
    from .. import placement

    index = index_of(device)
    if index >= 0:
        placement.require_device(index)
        library.load().neuron_set_device(index)


def synchronize(device: Device = None) -> None:
    """Wait for the work of a device. It is done when a call returns, except under Adaptive Eager Execution.

    Raises:
        RuntimeError: an operator that had been queued failed; it is named.
    """
    index = _require(device)
    if library.is_loaded():
        torch.accelerator.synchronize(index)


def get_device_properties(device: Device = None) -> NeuronDeviceProperties:
    """Properties of a device.

    Raises:
        ConfigError: there is no such device.
    """
    from .. import placement

    _require(device)
    target = placement.target()
    return NeuronDeviceProperties(
        name=target.name,
        instance=placement.instance().name,
        neuron_core=target.core.name,
        major=target.core.generation,
        minor=0,
        total_memory=target.hbm_bytes_of_one_core(),
        multi_processor_count=target.chip.num_cores // target.logical_cores_per_chip(),
    )


def get_device_name(device: Device = None) -> str:
    """Kind of a device, for example "neuron: NeuronCore-v2 (simulated)".

    The name contains "neuron" in lower case: TorchTitan, for one, looks for it to find the peak rate of the chip.
    """
    return f"neuron: {get_device_properties(device).neuron_core} (simulated)"


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """Generation of the core and 0."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


class device:  # noqa: N801  (torch's name)
    """Make a device current for a block; None or a negative index changes nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None else index_of(device)
        """Index of the device."""
        self._before = -1

    def __enter__(self) -> None:
        self._before = _exchange_device(self.idx)

    def __exit__(self, *error: object) -> None:
        set_device(self._before)


class device_of(device):  # noqa: N801  (torch's name)
    """Make the device of a tensor current for a block; tensors of other devices change nothing."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device if tensor.device.type == "neuron" else None)


def index_of(device: Device) -> int:
    """Index of a device; None and "neuron" are the current one.

    Raises:
        ValueError: it is a device of another kind.
    """
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    parsed = torch.device(device)
    if parsed.type != "neuron":
        raise ValueError(f"Expected a neuron device, but got: {parsed}")
    return current_device() if parsed.index is None else parsed.index


def _exchange_device(device: int) -> int:
    before = current_device()
    set_device(device)
    return before


_maybe_exchange_device = _exchange_device


def _require(device: Device) -> int:
    from .. import placement

    index = index_of(device)
    placement.require_device(index)
    return index


def _claimed() -> tuple[int, ...]:
    from .. import placement

    return placement.claimed()


def _is_in_bad_fork() -> bool:
    from .. import placement

    return placement.is_in_bad_fork()
