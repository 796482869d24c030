"""torch.distributed's backends of the devices, "neuron" and "xla": gloo over the bytes of device tensors.

Collectives of device tensors reach gloo through the dispatcher (csrc/fallback.h: `register_collectives`), so the
backend is gloo itself, registered for device and host tensors. Missing parts are added here: groups of collectives that
are waited for together (`_coalescing_manager`), options that can be copied, which DeviceMesh does, results in one flat
tensor, which accelerate gathers into, sums of scaled tensors, which FSDP2 divides gradients with, and a backend for
host tensors if a group was made for the device alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ..upstream.torch import (
    ALL_GATHER_SINGLE,
    BACKEND_CONFIG_INIT,
    COALESCED,
    END_COALESCING,
    GLOO_OPTIONS_COPY,
    REDUCE_SCATTER_SINGLE,
    START_COALESCING,
)

MakeBackend = Callable[[Any, int, int, timedelta], Any]
"""Makes a backend from a store, the rank, the number of ranks, and the time after which a collective fails."""

_backends: list[str] = []
"""Names of backends, which are those of their devices."""


def install() -> None:
    """Register the backend "neuron", where this torch has torch.distributed with gloo."""
    register("neuron", make_gloo)


def make_gloo(store: object, rank: int, size: int, timeout: timedelta) -> Any:
    """Make a backend for host tensors, and for device tensors that the dispatcher aliases to them."""
    import torch.distributed as dist

    return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)


def register(device_type: str, make: MakeBackend) -> None:
    """Register a backend under the name of its device, once.

    Args:
        device_type: such as "neuron".
        make: as `make_gloo`.
    """
    import torch.distributed as dist

    if device_type in _backends or not dist.is_available() or not dist.is_gloo_available():
        return
    dist.Backend.register_backend(device_type, make, devices=[device_type, "cpu"])
    _backends.append(device_type)
    if len(_backends) > 1:
        return
    GLOO_OPTIONS_COPY.set(_copy_options)
    BACKEND_CONFIG_INIT.replace(_with_host_backend)
    ALL_GATHER_SINGLE.replace(_with_flat_results)
    REDUCE_SCATTER_SINGLE.replace(_with_scaled_sums)
    _add_coalescing()


def _with_host_backend(initialize: Callable[..., None]) -> Callable[..., None]:
    """Give every group of the device a backend for host tensors: its collectives run there.

    Without a named backend torch takes the accelerator's alone, so a program on host tensors would fail too.
    """

    @functools.wraps(initialize)
    def completed(self: Any, *args: Any, **kwargs: Any) -> None:
        initialize(self, *args, **kwargs)
        for device_type in _backends:
            if device_type in self.device_backend_map:
                self.device_backend_map.setdefault("cpu", type(self.device_backend_map[device_type])("gloo"))

    return completed


def _copy_options(self: Any, memo: dict[int, Any]) -> Any:
    options = type(self)()
    options._devices, options._threads, options._timeout = self._devices, self._threads, self._timeout
    return options


def _with_flat_results(gather: Callable[..., Any]) -> Callable[..., Any]:
    """Let tensors be gathered into one of any shape with as many elements, as NCCL does; gloo compares shapes."""

    @functools.wraps(gather)
    def all_gather_single(self: Any, output: Any, part: Any, *args: Any, **kwargs: Any) -> Any:
        if output.device.type in _backends and part.ndim and output.shape[1:] != part.shape[1:]:
            output = output.view(-1, *part.shape[1:])
        return gather(self, output, part, *args, **kwargs)

    return all_gather_single


def _with_scaled_sums(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """Let tensors be scaled before they are summed and scattered, as NCCL does; FSDP2 divides gradients that way."""
    import torch.distributed as dist

    @functools.wraps(reduce)
    def reduce_scatter_single(self: Any, output: Any, whole: Any, opts: Any = None, **kwargs: Any) -> Any:
        options = dist.ReduceScatterOptions() if opts is None else opts
        if whole.device.type in _backends and options.reduceOp == dist.ReduceOp.PREMUL_SUM:
            whole = whole * options.reduceOp.factor
            summed = dist.ReduceScatterOptions()
            summed.timeout, summed.asyncOp = options.timeout, options.asyncOp
            options = summed
        return reduce(self, output, whole, options, **kwargs)

    return reduce_scatter_single


def _add_coalescing() -> None:
    """Let collectives between `_start_coalescing` and `_end_coalescing` run as usual, and be waited for together."""
    import torch
    import torch.distributed as dist

    class All(dist.Work):
        """Several pieces of work as one."""

        def __init__(self, parts: list[Any]) -> None:
            super().__init__()
            self.parts = parts

        def wait(self, timeout: timedelta | None = None) -> bool:
            for part in self.parts:
                part.wait()
            return True

        def is_completed(self) -> bool:
            return all(part.is_completed() for part in self.parts)

    opened: dict[str, list[Any]] = {}

    def is_ours(device: object) -> bool:
        return torch.device(device).type in _backends

    def starting(start: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(start)
        def start_coalescing(self: Any, device: Any) -> None:
            if is_ours(device):
                opened[self.group_name] = []
            else:
                start(self, device)

        return start_coalescing

    def ending(end: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(end)
        def end_coalescing(self: Any, device: Any) -> Any:
            return All(opened.pop(self.group_name)) if is_ours(device) else end(self, device)

        return end_coalescing

    def remembering(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            work = method(self, *args, **kwargs)
            if opened and self.group_name in opened:
                opened[self.group_name].append(work)
            return work

        return call

    START_COALESCING.replace(starting)
    END_COALESCING.replace(ending)
    for collective in COALESCED:
        collective.replace(remembering)
