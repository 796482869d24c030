"""Functions that packages above the runtime provide: it reports simulated times without knowing the simulator.

`optimum_neuron/wiring.py` sets them when the package is imported.

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
    launch_us: float
    """Part of `device_us` that starts the call."""
    copy_us: float
    """Time of the copies of inputs and results between host and device."""
    flops: int
    """Operations; a multiplication and an addition are two."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingCost:
    """Simulated time of a served decoder around the calls of its graphs."""

    chunk_s: float
    """Host, for each chunk of a prompt."""
    step_s: float
    """Host, for each decode step."""
    row_s: float
    """Host, for each request in a decode step."""
    copy_bytes_per_s: float
    """Rate of copies between host and device."""
    basis: str
    """Target and constants, in words."""


class Hooks:
    """The functions; each is set once."""

    call_cost: Callable[[Track, str], CallCost | None]
    """Cost of one call of a graph of a track; None if it cannot be computed."""
    serving_cost: Callable[[str], ServingCost]
    """Cost around the calls of a decoder that an instance of that name serves."""
    inspect_process: Callable[[Path], None]
    """Records this process from now on, and writes its profile to a folder at exit."""


HOOKS = Hooks()
