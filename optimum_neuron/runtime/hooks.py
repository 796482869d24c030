"""Functions that packages above the runtime provide: it reports simulated times without knowing the simulator.

`optimum_neuron/wiring.py` sets both when the package is imported.

    from optimum_neuron.runtime.hooks import HOOKS

    cost = HOOKS.call_cost(track, "prefill_128")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .timeline import Track


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallCost:
    """Simulated cost of one call of a loaded program."""

    device_us: float
    """Time on the core."""
    launch_us: float
    """Part of `device_us` that starts the call."""
    flops: int
    """Operations; a multiplication and an addition are two."""


class Hooks:
    """The functions; each is set once."""

    call_cost: Callable[[Track, str], CallCost]
    """Cost of one call of a graph of a track."""
    inspect_process: Callable[[Path], None]
    """Records this process from now on, and writes its profile to a folder at exit."""


HOOKS = Hooks()
