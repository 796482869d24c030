"""Settings of a thread while models are traced, loaded, and called: cores, replica, and whether anything runs.

The contexts hold for the thread that enters them. They know nothing of models.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
from collections.abc import Iterator

from ..errors import ConfigError
from ..hardware import InstanceSpec, resolve_instance
from ..runtime.core_choice import allowed_cores, num_usable
from ..runtime.cores import claim_cores


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a model is loaded."""

    cores: tuple[int | None, ...] = (None,)
    """One replica for each: a core, counted from 0 among those of the process, or None for the least loaded one."""


_PLACEMENT: contextvars.ContextVar[Placement | None] = contextvars.ContextVar("placement", default=None)
_DISABLED: contextvars.ContextVar[bool] = contextvars.ContextVar("disabled", default=False)
_REPLICA: contextvars.ContextVar[int | None] = contextvars.ContextVar("replica", default=None)
_DRY: contextvars.ContextVar[bool] = contextvars.ContextVar("dry", default=False)


def current_placement() -> Placement:
    """Where a model goes that is traced or loaded now."""
    return _PLACEMENT.get() or Placement()


def loading_disabled() -> bool:
    """Whether a model that is traced or loaded now waits for its first call."""
    return _DISABLED.get()


def chosen_replica() -> int | None:
    """Return the replica that calls of this thread go to; None lets replicas take turns."""
    return _REPLICA.get()


def is_dry() -> bool:
    """Return whether calls of this thread compute nothing."""
    return _DRY.get()


def make_placement(start_nc: int, nc_count: int) -> Placement:
    """Cores in a row.

    Args:
        start_nc: first core, counted from 0 among those of the process; -1 is the least loaded one.
        nc_count: how many; -1 is one. Each gets a replica.

    Raises:
        ConfigError: the process has no such cores.
    """
    instance = resolve_instance().value
    total = num_usable(instance, os.environ)
    count = 1 if nc_count == -1 else nc_count
    if not 1 <= count <= total or not -1 <= start_nc <= total - (count if start_nc >= 0 else 0):
        raise no_such_cores(f"start_nc={start_nc}, nc_count={nc_count}")
    if start_nc < 0 and count == 1:
        return Placement()
    first = start_nc if start_nc >= 0 else _least_loaded(instance)
    return Placement(cores=tuple((first + index) % total for index in range(count)))


def no_such_cores(request: str) -> ConfigError:
    """Return the error for cores that this process does not have."""
    instance = resolve_instance().value
    total = num_usable(instance, os.environ)
    return ConfigError(
        f"{request} is not possible: this process may use {total} cores of {instance.name}.",
        hint=f"Name different cores from 0 to {total - 1}; -1 as start_nc or nc_count leaves the choice open.",
        num_cores=total,
    )


def _least_loaded(instance: InstanceSpec) -> int:
    with claim_cores(instance, model="placement") as claim:
        visible = allowed_cores(instance, os.environ)
        # Which cores NEURON_RT_NUM_CORES keeps is known to claims only: there, counting begins with the first.
        return visible.core_ids.index(claim.core_ids[0]) if visible.num_reserved is None else 0


@contextlib.contextmanager
def neuron_cores_context(start_nc: int = -1, nc_count: int = -1) -> Iterator[None]:
    """Load what is traced or loaded inside onto these cores, see `make_placement`.

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
    token = _PLACEMENT.set(make_placement(start_nc, nc_count))
    try:
        yield
    finally:
        _PLACEMENT.reset(token)


@contextlib.contextmanager
def multicore_context() -> Iterator[None]:
    """Load what is traced or loaded inside onto every core of the process."""
    with neuron_cores_context(0, num_usable(resolve_instance().value, os.environ)):
        yield


@contextlib.contextmanager
def disable_nrt_load() -> Iterator[None]:
    """Claim no core for what is traced or loaded inside, until it is called."""
    token = _DISABLED.set(True)
    try:
        yield
    finally:
        _DISABLED.reset(token)


@contextlib.contextmanager
def calls_to(replica: int) -> Iterator[None]:
    """Send the calls of this thread to one replica."""
    token = _REPLICA.set(replica)
    try:
        yield
    finally:
        _REPLICA.reset(token)


@contextlib.contextmanager
def dry_calls() -> Iterator[None]:
    """Let calls return tensors of the right shapes without computing or loading anything."""
    token = _DRY.set(True)
    try:
        yield
    finally:
        _DRY.reset(token)
