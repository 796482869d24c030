"""`nki.jit`, `nki.trace` and `nki.simulate_kernel` of the older API: kernels on a simulated core."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...errors import ConfigError
from ..kernel import Kernel
from ..tensor import NkiTensor
from .tiles import older

DEFAULT_PLATFORM = "trn2"
"""Target without an argument or environment variable: the newest that the older API was made for."""
MODES = ("auto", "jax", "torchxla", "torch", "trace", "simulation")
_NOT_NEEDED = {"additional_compile_opt", "kernel_return", "show_compiler_tb", "debug_kernel"}
"""Options that say how the vendor's compiler reports and returns: kernels return here what they return."""


def jit(func: Callable[..., Any] | None = None, mode: str = "auto", **kwargs: Any) -> Any:
    """Make a kernel of a function, as `@nki.jit` or `@nki.jit(mode=...)`; every mode simulates.

    Args:
        func: the function.
        mode: a framework's name, "trace" or "simulation"; "baremetal", "benchmark" and "profile" are the functions of
            these names.
        **kwargs: `platform_target`, as "trn2".

    Raises:
        ConfigError: another option.
    """
    if mode in ("baremetal", "benchmark", "profile"):
        from . import measuring

        return getattr(measuring, mode)(func, **kwargs)
    platform = kwargs.pop("platform_target", None)
    unknown = sorted(set(kwargs) - _NOT_NEEDED)
    if unknown or mode not in MODES:
        options = unknown or [f"mode={mode}"]
        message = f"nki.jit has no option {', '.join(options)} here."
        raise ConfigError(message, hint="Leave it out: kernels are simulated.", options=options)
    if func is None:
        return functools.partial(jit, mode=mode, **({"platform_target": platform} if platform else {}))
    return kernel_of(func, platform)


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


def trace(func: Callable[..., Any] | None = None, **kwargs: object) -> Any:
    """Make a kernel that other kernels call; the same as `jit` here."""
    return jit(func, "trace", **kwargs)


def simulate_kernel(kernel: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    """Run a kernel on NumPy arrays, and return its results."""
    return kernel_of(getattr(kernel, "kernel", kernel))(*args, **kwargs)
