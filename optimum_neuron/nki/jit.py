"""`@nki.jit`: kernels of functions, called on the host, on devices of torch, and in graphs.

This module knows all places where a kernel may be called; `kernel.py` knows the host only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from typing import Any

from ..errors import ConfigError
from .calls import call_in_graph, is_traced
from .devices import call_on_device, is_on_device
from .kernel import SITES, Kernel as Kernel, simulate

SITES += [(is_traced, call_in_graph), (is_on_device, call_on_device)]
COMPILER_OPTIONS = frozenset(
    {"mode", "debug_kernel", "show_compiler_tb", "experimental_flags", "experimental_features", "kernel_return"}
)
"""Options of the vendor's compiler, which say how it works and reports, not what a kernel computes."""


def require_options(function: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse options that a function does not have."""
    if unknown := sorted(set(given) - set(known)):
        message = f"{function} has no option {', '.join(unknown)} here."
        raise ConfigError(message, hint=f"Its options are {', '.join(sorted(known))}.", options=unknown)


def jit(fn: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Make a kernel of a function, as `@nki.jit` or `@nki.jit(...)`.

    Args:
        fn: the function.
        **kwargs: `platform_target`, as "trn2": the target, unless NEURON_PLATFORM_TARGET_OVERRIDE names one.
            `platform_rules`: whether Python that the hardware's compiler does not take is refused (default: what
            OPTIMUM_NEURON_NKI_PLATFORM_RULES says; no). Options of the vendor's compiler, as `mode` and
            `debug_kernel`, change nothing.

    Raises:
        ConfigError: another option.
    """
    require_options("nki.jit", kwargs, ("platform_target", "platform_rules", *COMPILER_OPTIONS))
    if fn is None:
        return functools.partial(jit, **kwargs)
    given = {"platform": kwargs.get("platform_target"), "platform_rules": kwargs.get("platform_rules")}
    options = {name: value for name, value in given.items() if value is not None}
    made = simulate(fn)
    return made.changed(**options) if options else made
