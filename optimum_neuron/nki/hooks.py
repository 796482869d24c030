"""What kernels on devices ask of packages that they do not know; `optimum_neuron/wiring.py` fills it in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..hardware import Target


@dataclasses.dataclass(frozen=True)
class Launch:
    """One launch of a kernel on a device."""

    device: int
    key: str
    """Key of the kernel, for `kernel_time`."""
    name: str
    """The kernel and the sizes of its tensors."""
    started_ns: int
    """Begin on this host's clock (`time.perf_counter_ns`)."""
    ended_ns: int


@dataclasses.dataclass
class Hooks:
    """Functions of other packages."""

    target_of: Callable[[int], Target] | None = None
    launched: Callable[[Launch], None] | None = None
    """Is called after each launch on a device."""


HOOKS = Hooks()
