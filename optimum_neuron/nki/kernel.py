"""`@nki.jit` and `nki.simulate`: kernels called with NumPy arrays and torch tensors.

Arguments that are arrays become tensors in HBM and share their memory, so a kernel that writes an input changes the
caller's array. Other arguments pass through. Results are torch tensors if an argument was one, and NumPy arrays if not.
`kernel[n](...)` runs once for each place of a grid, in turns: a core runs until it waits for another one or ends. Cores
of one launch share `nl.shared_hbm`.
A kernel called by another runs on its core.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch
from torch.utils._pytree import register_constant

from .. import env
from ..after_import import after_import
from ..errors import ConfigError, KernelError
from .arguments import Arguments, tensors_in
from .calls import call_in_graph, is_traced
from .core import Core, Grid, Record, default_target, running, use


class Kernel:
    """A function that runs on a simulated core.

    Kernels of one function and one grid are equal. This is no dataclass, because Dynamo rebuilds those.
    """

    def __init__(self, function: Callable[..., Any], grid: tuple[int, ...] = ()) -> None:
        self.function, self.grid = function, grid
        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(function, name):
                setattr(self, name, getattr(function, name))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and (self.function, self.grid) == (other.function, other.grid)

    def __hash__(self) -> int:
        return hash((self.function, self.grid))

    def __repr__(self) -> str:
        return f"Kernel({self.function.__name__}, grid={self.grid})"

    def __getitem__(self, grid: Any) -> Kernel:
        """Return the kernel for a grid, as in `kernel[2](x)`."""
        return Kernel(self.function, tuple(int(size) for size in (grid if isinstance(grid, tuple) else (grid,))))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it; inside another kernel, on that one's core."""
        if torch.compiler.is_dynamo_compiling():
            results, _ = _call_in_frame(self, args, kwargs)
            return results[0] if results else None
        if running():
            return self.function(*args, **kwargs)
        return _call(self, args, kwargs)


def _call(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from .devices import call_on_device, is_on_device

    tensors = tensors_in((args, kwargs))
    if is_traced(tensors):
        return call_in_graph(kernel, args, kwargs)
    if is_on_device(tensors):
        return call_on_device(kernel, args, kwargs)
    return launch(kernel, args, kwargs)[0]


register_constant(Kernel)


def _with_input(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Call a kernel, and return a tensor in any case and None in none, because Dynamo takes no other calls."""
    result = _call(kernel, args, kwargs)
    return () if result is None else (result,), tensors_in((args, kwargs))[0]


_call_in_frame = _with_input


def _keep_whole(dynamo: ModuleType) -> None:
    """Have Dynamo read no kernel: AOTAutograd traces the call, and the kernel becomes a node of its graph."""
    global _call_in_frame
    _call_in_frame = dynamo.nonstrict_trace(_with_input)


after_import("torch._dynamo", _keep_whole)


def jit(fn: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Make a kernel of a function, as `@nki.jit` or `@nki.jit(...)`.

    Args:
        fn: the function.
        **kwargs: `mode` is accepted, because kernels of older versions pass it, and changes nothing.

    Raises:
        ConfigError: another option.
    """
    unknown = sorted(set(kwargs) - {"mode"})
    if unknown:
        message = f"nki.jit has no option {', '.join(unknown)}."
        hint = "Set NEURON_PLATFORM_TARGET_OVERRIDE to choose the target."
        raise ConfigError(message, hint=hint, options=unknown)
    if fn is None:
        return jit
    return fn if isinstance(fn, Kernel) else Kernel(fn)


def simulate(kernel: Callable[..., Any]) -> Kernel:
    """Return a kernel that runs in this process, as every kernel does here."""
    return kernel if isinstance(kernel, Kernel) else Kernel(kernel)


def launch(
    kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, record: bool = False, strict: bool = False
) -> tuple[Any, list[Record]]:
    """Run a kernel, and return its results and, if it records, the stream of its first core.

    Raises:
        KernelError: the kernel breaks a rule, or returns nothing and writes no input.
    """
    result, core = launch_on_cores(kernel, args, kwargs, record=record, strict=strict)
    return result, core.stream or []


def launch_on_cores(
    kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, record: bool, strict: bool = False
) -> tuple[Any, Core]:
    """Run a kernel as `launch` does, and return its results and its first core."""
    target, precise = default_target(), env.nki_precise()
    grid = Grid(shape=kernel.grid)
    inputs = Arguments(precise)
    placed = [inputs.place(value, f"argument_{number}") for number, value in enumerate(args)]
    named = {name: inputs.place(value, name) for name, value in kwargs.items()}
    ranks = list(itertools.product(*map(range, kernel.grid)))
    cores = [Core(target=target, grid=grid, rank=rank, precise=precise, strict=strict) for rank in ranks]
    cores[0].stream = [] if record else None

    def run(core: Core) -> Any:
        with use(core):
            return kernel.function(*placed, **named)

    bodies = [functools.partial(run, core) for core in cores]
    result = bodies[0]() if len(bodies) == 1 else grid.turns.run(bodies)[-1]
    inputs.write_back()
    if result is None and not inputs.changed:
        message = f"The kernel {kernel.function.__name__} returned nothing and wrote no input."
        raise KernelError(message, hint="Return the tensors in nl.shared_hbm that it wrote.", rule="result")
    with use(cores[-1]):
        return inputs.results(result), cores[0]
