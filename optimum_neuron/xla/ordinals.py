"""Processes of a training run and their devices: what `torch_xla.runtime` is asked for.

Under torchrun each process has one device, so ordinals are ranks. The answers come from the process group where there
is one, and from the variables of the launcher before.

    >>> world_size(), global_ordinal(), is_master_ordinal()
    (1, 0, True)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from ..base import env


def _of_group(name: str, otherwise: Callable[[], int | None]) -> int | None:
    """An answer of torch's process group, once there is one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return getattr(distributed, name)()
    return otherwise()


def world_size() -> int:
    """Return the number of processes that train together."""
    return _of_group("get_world_size", env.world_size) or 1


def global_ordinal() -> int:
    """Return the number of this process among all."""
    return 0 if world_size() == 1 else _of_group("get_rank", env.rank) or 0


def local_ordinal() -> int:
    """Return the number of this process on its machine."""
    return env.local_rank() or 0


def local_process_count() -> int:
    """Return the number of processes on this machine."""
    return env.local_world_size() or 1


def host_index() -> int:
    """Return the number of this machine among those of the run."""
    return global_ordinal() // local_process_count()


def local_device_count() -> int:
    """Return the number of devices of all processes on this machine."""
    return local_process_count() * addressable_device_count()


def global_device_count() -> int:
    """Return the number of devices of all processes."""
    return world_size() * addressable_device_count()


def addressable_device_count() -> int:
    """Return the number of devices of this process."""
    from .library import device_count

    return device_count()


def is_master_ordinal(local: bool = True) -> bool:
    """Return whether this process is the first one.

    Args:
        local: the first on its machine; False: the first of all.
    """
    return (local_ordinal() if local else global_ordinal()) == 0


def master_print(*args: object, fd: TextIO | None = None, local: bool = False, flush: bool = False) -> None:
    """Print in the first process only.

    Args:
        *args: as of `print`.
        fd: where to; None: stdout.
        local: print in the first process of each machine.
        flush: as of `print`.
    """
    if is_master_ordinal(local):
        print(*args, file=sys.stdout if fd is None else fd, flush=flush)


def get_master_ip() -> str:
    """Return the address of the machine with the first process, which torchrun sets."""
    return env.master_address() or "127.0.0.1"
