"""Kernels of the older API, and `nki.simulate_kernel`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..jit import Kernel
from ..tensor import NkiTensor
from .tiles import older

DEFAULT_PLATFORM = "trn2"
"""Target without an argument or environment variable: the newest that the older API was made for."""


def kernel_of(func: Callable[..., Any], platform: str | None = None) -> Kernel:
    """Return a kernel of the older API; one stays what it is."""
    if isinstance(func, Kernel):
        return func.changed(platform=platform) if platform else func

    @functools.wraps(func)
    def run(*args: object, **named: object) -> Any:
        return func(*map(_older, args), **{name: _older(value) for name, value in named.items()})

    return Kernel(run, platform=platform or DEFAULT_PLATFORM, is_older=True)


def _older(value: object) -> Any:
    if isinstance(value, list | tuple) and any(isinstance(item, NkiTensor) for item in value):
        return type(value)(map(_older, value))
    return older(value) if isinstance(value, NkiTensor) else value


def simulate_kernel(kernel: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    """Run a kernel on NumPy arrays, and return its results."""
    return kernel_of(getattr(kernel, "kernel", kernel))(*args, **kwargs)
