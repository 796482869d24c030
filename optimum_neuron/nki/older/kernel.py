"""`nki.jit` and `nki.simulate_kernel` of the older API."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...errors import ConfigError
from ..kernel import Kernel
from ..tensor import NkiTensor
from .tiles import older


def jit(func: Callable[..., Any] | None = None, mode: str = "auto", **kwargs: Any) -> Any:
    """Make a kernel of a function, as `@nki.jit` or `@nki.jit(mode=...)`; every mode simulates.

    Raises:
        ConfigError: another option.
    """
    if kwargs or mode not in ("auto", "jax", "torchxla", "torch", "baremetal", "benchmark", "profile", "simulation"):
        options = sorted(kwargs) or [f"mode={mode}"]
        message = f"nki.jit has no option {', '.join(options)} here."
        raise ConfigError(message, hint="Leave it out: kernels are simulated.", options=options)
    if func is None:
        return functools.partial(jit, mode=mode)
    if isinstance(func, Kernel):
        return func

    @functools.wraps(func)
    def run(*args: Any, **named: Any) -> Any:
        return func(*map(_older, args), **{name: _older(value) for name, value in named.items()})

    return Kernel(run)


def _older(value: Any) -> Any:
    return older(value) if isinstance(value, NkiTensor) else value


def simulate_kernel(kernel: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a kernel on NumPy arrays, and return its results."""
    return jit(kernel)(*args, **kwargs)
