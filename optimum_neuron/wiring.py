"""Joins packages that do not know each other: the runtime reports simulated times without knowing the simulator.

`optimum_neuron/__init__.py` imports this module; the packages that it joins are imported at their first use.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .runtime.hooks import HOOKS, CallCost

if TYPE_CHECKING:
    from .runtime.timeline import Track


def _call_cost(track: Track, graph: str) -> CallCost:
    from .simulator.clock import call_cost

    return call_cost(track, graph)


def _inspect_process(folder: Path) -> None:
    from .profiling.inspection import inspect_process

    inspect_process(folder)


HOOKS.call_cost = _call_cost
HOOKS.inspect_process = _inspect_process
