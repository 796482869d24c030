"""Joins packages that do not know each other: the runtime reports simulated times without knowing the simulator, and a
configuration reads exported folders without knowing their format. Kernels on device tensors reach the device.

`optimum_neuron/__init__.py` imports this module; the packages that it joins are imported at their first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import nki
from .options import hooks
from .runtime import HOOKS, CallCost, ServingCost

if TYPE_CHECKING:
    from .hardware import Target
    from .options.configuration import CompileConfig
    from .runtime import Track


def _call_cost(track: Track, graph: str) -> CallCost | None:
    from .simulator import known_cost

    return known_cost(track, graph)


def _serving_cost(instance: str) -> ServingCost:
    from .simulator import serving_cost

    return serving_cost(instance)


def _inspect_process(folder: Path) -> None:
    from .profiling import inspect_process

    inspect_process(folder)


def _target_of_device(device: int) -> Target:
    from .device import placement

    return placement.target()


def _kernel_launched(launch: nki.Launch) -> None:
    from .device import kernels

    kernels.count(launch)


def _exported_config(model: str | Path, where: Mapping[str, Any]) -> CompileConfig:
    from .exporters import read_bare_config, read_folder
    from .sources import find_folder

    folder = find_folder(model, **where)
    bare = read_bare_config(folder)
    return read_folder(folder).config if bare is None else bare


hooks.HOOKS.exported_config = _exported_config
nki.HOOKS.target_of = _target_of_device
nki.HOOKS.launched = _kernel_launched
HOOKS.call_cost = _call_cost
HOOKS.serving_cost = _serving_cost
HOOKS.inspect_process = _inspect_process
