"""Facts of a launch that scripts ask for, and output of rank 0."""

from __future__ import annotations

import torch
import torch.distributed as dist

from .. import xla
from ..base import env
from .parallel_state import cpu_mode, is_global_rank_zero


def begin() -> None:
    """Make "xla" a device of torch and a backend of torch.distributed, unless NXD_CPU_MODE=1."""
    if not cpu_mode():
        xla.enable()
        xla.process_groups.register()


def get_local_world_size() -> int:
    """Return the number of processes on this machine."""
    world = dist.get_world_size() if dist.is_initialized() else 1
    return env.local_world_size() or world


def is_pjrt_device() -> bool:
    """Return whether PJRT_DEVICE is NEURON."""
    return env.variable("PJRT_DEVICE") == "NEURON"


def is_torch_version_greater_than_2() -> bool:
    """Return whether torch is 2.0 or newer."""
    return int(torch.__version__.split(".")[0]) >= 2


def requires_init_pg_override() -> bool:
    """Return whether `init_process_group` needs `init_method="pjrt://"`: it does not."""
    return False


def master_print(*messages: object) -> None:
    """Print on rank 0.

    Args:
        *messages: as of `print`.
    """
    if is_global_rank_zero():
        print(*messages, flush=True)
