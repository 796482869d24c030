"""Kernels on tensors of torch's devices: on "neuron" they run on the memory of its core, in place.

On "xla" a call is one operator of the graph that the device records.

`optimum_neuron.device` knows cores and their timelines; `HOOKS` leads there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..errors import KernelError
from ..hardware import kernels_for
from ..upstream.torch import tree_map_only
from .arguments import tensors_in
from .calls import call_in_graph, call_key, on_device
from .hooks import HOOKS, Launch
from .kernel import Kernel, launch_on_cores
from .timing import remember

DEVICES = ("neuron", "xla")


_names: dict[str, str] = {}
"""Keys of the kernels that were launched, by everything that their instructions depend on."""


def is_on_device(tensors: Sequence[Any]) -> bool:
    """Return whether a kernel is called with tensors of the device."""
    return any(isinstance(value, torch.Tensor) and value.device.type in DEVICES for value in tensors)


def call_on_device(kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Launch a kernel on tensors of one device."""
    tensors: list[Any] = tensors_in((args, kwargs))
    places = sorted({str(value.device) if isinstance(value, torch.Tensor) else "NumPy" for value in tensors})
    if len(places) > 1:
        message = f"The kernel {kernel.function.__name__} gets tensors on {' and '.join(places)}."
        raise KernelError(message, hint="Move all of them to one device.", rule="device", devices=places)
    assert HOOKS.target_of is not None and HOOKS.launched is not None, "wiring.py fills them in"
    device = tensors[0].device.index
    if tensors[0].device.type == "xla":
        with kernels_for(HOOKS.target_of(device)):
            return call_in_graph(kernel, args, kwargs)
    host = torch.ops.neuron_sim.alias_cpu_list(tensors)
    rest = iter(host)
    given = tree_map_only(torch.Tensor, lambda value: next(rest), (args, dict(kwargs)))
    key = f"{kernel.function.__name__} on device {device} {call_key(kernel, args, kwargs)}"
    is_new = key not in _names
    started_ns = time.perf_counter_ns()
    with kernels_for(HOOKS.target_of(device)):
        result, cores = launch_on_cores(kernel, *given, record=is_new)
    if is_new:
        _names[key] = remember(kernel.function.__name__, cores[0])
    sizes = " ".join(f"{str(value.dtype).removeprefix('torch.')}{[*value.shape]}" for value in tensors)
    name = f"{kernel.function.__name__} {sizes}".replace(", ", ",")
    HOOKS.launched(Launch(device, _names[key], name, started_ns, time.perf_counter_ns()))
    inputs = {id(value): ours for value, ours in zip(host, tensors, strict=True)}
    return tree_map_only(
        torch.Tensor, lambda value: inputs[id(value)] if id(value) in inputs else on_device(value, device), result
    )
