"""Simulated core of "neuron:<i>": counted, claimed for this process, and bounded by its HBM ledger.

Device i is the i-th core that the environment leaves to the process. A core is claimed at the first use of its device
and kept until the process ends; loaded programs of the same process may share it, and count in the same ledger.

    >>> from optimum_neuron.device.placement import device_count
    >>> device_count() > 0
    True
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable

from ..base import env
from ..errors import ConfigError, CoreBusyError
from ..hardware import TARGETS, InstanceSpec, Target, resolve_instance
from ..runtime import TORCH_OWNER, CoreClaim, HbmLedger, claim_cores, ledger, num_usable

MAX_DEVICES = 127
"""torch's device index is a signed byte."""

_claims: dict[int, CoreClaim] = {}
_lock = threading.RLock()
_forked = False


def instance() -> InstanceSpec:
    """The simulated instance."""
    return resolve_instance().value


def target() -> Target:
    """The simulated family."""
    return TARGETS[instance().family]


def device_count() -> int:
    """Number of devices: cores that NEURON_RT_VISIBLE_CORES or NEURON_RT_NUM_CORES leave, or all of the instance."""
    return _device_count(env.machine_variables())


@functools.lru_cache(maxsize=16)
def _device_count(variables: tuple[str | None, ...]) -> int:
    """Count once for each environment: torch asks at every operator on fake tensors."""
    return min(num_usable(instance(), os.environ), MAX_DEVICES)


def default_device() -> int:
    """The device a thread starts with: the local rank, so that each process of torchrun has its own core.

    If the process has a single core, that one.
    """
    rank, count = env.local_rank() or 0, device_count()
    if rank < count:
        return rank
    if count == 1 and (env.visible_cores() is not None or env.num_cores() is not None):
        return 0
    message = f"LOCAL_RANK is {rank}, but each process needs a core and {instance().name} has {count} to use."
    hint = f"Start at most {count} processes, or simulate a larger instance (OPTIMUM_NEURON_INSTANCE)."
    raise ConfigError(message, hint=hint, rank=rank, count=count)


def claim(device: int) -> HbmLedger:
    """Claim the core of a device as `core` does, and return its ledger."""
    held = core(device)
    return ledger(held.instance, held.core_ids[0])


def core(device: int) -> CoreClaim:
    """Make the core of a device this process's, if it is not yet, and return the claim."""
    with _lock:
        if device not in _claims:
            require_device(device)
            if _forked:
                message = "The neuron device does not work in a forked process: its cores belong to the parent process."
                hint = "Start workers with the method 'spawn', or fork before the first use."
                raise CoreBusyError(message, hint=hint)
            _claims[device] = claim_cores(instance(), model=TORCH_OWNER, start=device)
        return _claims[device]


def claimed() -> tuple[int, ...]:
    """Devices whose cores this process has claimed."""
    return tuple(sorted(_claims))


def is_in_bad_fork() -> bool:
    """Return whether this process is a fork of one that used the device."""
    return _forked


def attach_meter(device: int, used_bytes: Callable[[int], int], set_limit: Callable[[int, int], None]) -> None:
    """Claim the core of a device, and charge the allocations of the shared object to its ledger."""
    claim(device).attach(
        TORCH_OWNER, "kv_cache", used_bytes=lambda: used_bytes(device), set_limit=lambda limit: set_limit(device, limit)
    )


def limit(device: int) -> int:
    """Bytes that device tensors may use: the HBM of the core minus other charges."""
    return claim(device).limit_of(TORCH_OWNER)


def out_of_memory(device: int, size_bytes: int) -> str:
    """Return the error message for a failed allocation, with the memory table of the core."""
    return claim(device).refused(TORCH_OWNER, "kv_cache", size_bytes)


def require_device(device: int) -> None:
    """Check that a device index exists in this process."""
    count = device_count()
    if not 0 <= device < count:
        num_cores, name = instance().num_logical_cores(), instance().name
        message = f"neuron:{device}: invalid device ordinal, this process has {count} of {num_cores} cores of {name}."
        hint = f"Use neuron:0 to neuron:{count - 1}, or simulate a larger instance (OPTIMUM_NEURON_INSTANCE)."
        raise ConfigError(message, hint=hint, device=device, count=count)


def _after_fork() -> None:
    global _forked
    _forked = _forked or bool(_claims)
    _claims.clear()


os.register_at_fork(after_in_child=_after_fork)
