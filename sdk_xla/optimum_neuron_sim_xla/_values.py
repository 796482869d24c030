"""Values of names that need no code in `optimum_neuron`, and old names."""

from __future__ import annotations

from typing import Any

from optimum_neuron.base.vendor import refuse_beside
from optimum_neuron.xla import enable, graphs, links, ordinals, process_groups, selection

from ._distribution import VERSION

__version__ = VERSION

REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX = "sum", "mul", "and", "or", "min", "max"

LOCAL_RANK, RANK, WORLD_SIZE, LOCAL_WORLD_SIZE = "LOCAL_RANK", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"
PJRT_DEVICE, PJRT_SELECT_DEFAULT_DEVICE = "PJRT_DEVICE", "PJRT_SELECT_DEFAULT_DEVICE"
HOST_WORLD_SIZE = "HOST_WORLD_SIZE"
PJRT_LOCAL_PROCESS_COUNT, PJRT_LOCAL_PROCESS_RANK = "PJRT_LOCAL_PROCESS_COUNT", "PJRT_LOCAL_PROCESS_RANK"

_OLD = "torch_xla.core.xla_model"


def _device(n: int | None = None, devkind: str | None = None) -> Any:
    return selection.device(n)


xla_device = selection.renamed(f"{_OLD}.xla_device", "torch_xla.device", _device)
mark_step = selection.renamed(f"{_OLD}.mark_step", "torch_xla.sync", graphs.sync)
get_local_ordinal = ordinals.local_ordinal
xrt_world_size = selection.renamed(
    f"{_OLD}.xrt_world_size", "torch_xla.runtime.world_size", ordinals.world_size, release="2.7"
)
get_ordinal = selection.renamed(
    f"{_OLD}.get_ordinal", "torch_xla.runtime.global_ordinal", ordinals.global_ordinal, release="2.7"
)


def begin() -> None:
    """Make "xla" a device of torch, and a backend of torch.distributed, when `torch_xla` is imported.

    Raises:
        ImportError: the real torch_xla is installed.
    """
    refuse_beside("torch-xla", "torch_xla")
    enable()
    links.leave_at_exit()
    process_groups.register()
