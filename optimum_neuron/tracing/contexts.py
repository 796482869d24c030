"""Settings of a thread while models are traced, loaded, and called: cores, replica, and whether anything runs.

The contexts hold for the thread that enters them. They know nothing of models.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

from ..errors import ConfigError
from ..hardware import resolve_instance
from ..runtime import allowed_cores, claim_cores, num_usable

T = TypeVar("T")

Placement: TypeAlias = tuple[int | None, ...]
"""A replica on each core, counted from 0 among those of the process; None is the least loaded core."""

PLACEMENT: ContextVar[Placement] = ContextVar("placement", default=(None,))
"""Placement of a model that is traced or loaded now."""
IS_LAZY: ContextVar[bool] = ContextVar("is_lazy", default=False)
"""Whether a model that is traced or loaded now waits for its first call."""
REPLICA: ContextVar[int | None] = ContextVar("replica", default=None)
"""The replica that calls go to; None lets replicas take turns."""
IS_DRY: ContextVar[bool] = ContextVar("is_dry", default=False)
"""Whether calls return tensors of the right shapes without computing or loading anything."""


@contextlib.contextmanager
def setting(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Let a setting have another value inside."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def make_placement(start_nc: int, nc_count: int) -> Placement:
    """Cores in a row, counted as by `placement.set_neuron_cores`."""
    total = num_cores()
    count = 1 if nc_count == -1 else nc_count
    if not 1 <= count <= total or not -1 <= start_nc <= total - (count if start_nc >= 0 else 0):
        raise no_such_cores(f"start_nc={start_nc}, nc_count={nc_count}")
    if start_nc < 0 and count == 1:
        return (None,)
    first = start_nc if start_nc >= 0 else _least_loaded()
    return tuple((first + index) % total for index in range(count))


def starts_of(placement: Placement, width: int) -> Placement:
    """Return the first core of each replica of a model on `width` cores; what is left over stays empty."""
    return placement if width == 1 or len(placement) < width else placement[: len(placement) // width * width : width]


def no_such_cores(request: str, *, hint: str = "") -> ConfigError:
    """Return the error for cores that this process does not have."""
    total = num_cores()
    message = f"{request} is not possible: this process may use {total} cores of {resolve_instance().value.name}."
    hint = hint or f"Name different cores from 0 to {total - 1}; -1 as start_nc or nc_count leaves the choice open."
    return ConfigError(message, hint=hint, request=request, num_cores=total)


def num_cores() -> int:
    """Number of cores of the simulated instance that this process may use."""
    return num_usable(resolve_instance().value, os.environ)


def _least_loaded() -> int:
    instance = resolve_instance().value
    with claim_cores(instance, model="placement") as claim:
        visible = allowed_cores(instance, os.environ)
        # Only claims know which cores NEURON_RT_NUM_CORES keeps: there, counting begins with the first.
        return visible.core_ids.index(claim.core_ids[0]) if visible.num_reserved is None else 0


@contextlib.contextmanager
def neuron_cores_context(start_nc: int = -1, nc_count: int = -1) -> Iterator[None]:
    """Load models traced or loaded inside onto these cores, counted as by `set_neuron_cores`.

    Raises:
        ConfigError: the process has no such cores.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import neuron_cores_context, trace

        with neuron_cores_context(start_nc=1):
            model = trace(torch.nn.ReLU(), torch.rand(2), compiler_args="-O1")
        ```
    """
    with setting(PLACEMENT, make_placement(start_nc, nc_count)):
        yield


@contextlib.contextmanager
def multicore_context() -> Iterator[None]:
    """Load models traced or loaded inside onto every core of the process."""
    with neuron_cores_context(0, num_cores()):
        yield


@contextlib.contextmanager
def disable_nrt_load() -> Iterator[None]:
    """Claim no core for models traced or loaded inside, until they are called."""
    with setting(IS_LAZY, True):
        yield
