"""A kernel, called with NumPy arrays and torch tensors, and its launch on the cores of the host. `jit.py` makes them.

Arguments that are arrays become tensors in HBM and share their memory, so a kernel that writes an input changes the
caller's array. Other arguments pass through. Results are torch tensors if an argument was one, and NumPy arrays if not.
`kernel[n](...)` runs once for each place of a grid, in turns: a core runs until it waits for another one or ends. Cores
of one launch share `nl.shared_hbm`.
A kernel called by another runs on its core.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from ..base import env
from ..base.after_import import after_import
from ..errors import ConfigError
from ..hardware import Target
from ..upstream.torch import register_constant
from . import indirect as indirect  # registers the views by indices
from .arguments import Arguments, tensors_in
from .core import Core, Grid, Record, Rule, default_target, first_line, quoted, require, running, use
from .platform import check
from .scheduling import Edge, edges_of
from .world import World

_OPTIONS = ("grid", "platform", "ignores_addresses", "platform_rules", "schedule", "is_older")


class Kernel:
    """A function that runs on a simulated core. This is no dataclass, because Dynamo rebuilds those.

    Args:
        function: the kernel's Python.
        grid: sizes of the grid; () for one core.
        platform: target that it is written for; None leaves it to the environment.
        ignores_addresses: whether tiles that it places are left to the compiler.
        platform_rules: whether Python that the hardware's compiler does not take is refused; None leaves it to the
            environment.
        schedule: names of instructions, with the names that they wait for.
        is_older: whether it is one of the older API, whose compiler ran the kernel's Python.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        grid: tuple[int, ...] = (),
        platform: str | None = None,
        ignores_addresses: bool = False,
        platform_rules: bool | None = None,
        schedule: tuple[Edge, ...] = (),
        is_older: bool = False,
    ) -> None:
        self.function, self.grid = function, grid
        self.platform, self.ignores_addresses = platform, ignores_addresses
        self.platform_rules, self.schedule, self.is_older = platform_rules, schedule, is_older
        self.base: Kernel | None = None
        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(function, name):
                setattr(self, name, getattr(function, name))

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @property
    def options(self) -> dict[str, Any]:
        """Everything but the function, by the names of the arguments."""
        return {name: getattr(self, name) for name in _OPTIONS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and (self.function, self.options) == (other.function, other.options)

    def __hash__(self) -> int:
        return hash((self.function, *self.options.values()))

    def __repr__(self) -> str:
        return f"Kernel({self.function.__name__}, grid={self.grid})"

    def __getitem__(self, grid: object) -> Kernel:
        """Return the kernel for a grid, as in `kernel[2](x)`."""
        items = grid if isinstance(grid, tuple | list) else (grid,)
        sizes = tuple(size if isinstance(size, int) else operator.index(size) for size in items)
        if min(sizes, default=1) < 1:
            raise ConfigError(f"A kernel has the grid {sizes}.", hint="Use sizes of at least 1.", grid=sizes)
        made = self.changed(grid=sizes)
        # Dynamo takes objects that were made outside of the function that it compiles, and numbers.
        made.base = self if self.base is None else self.base
        return made

    def changed(self, **options: object) -> Kernel:
        """Return the kernel with other options."""
        return Kernel(self.function, **{**self.options, **options})

    def keeps_rules(self) -> bool:
        """Return whether Python that the hardware's compiler does not take is refused.

        Raises:
            KernelError: it is, and the kernel has some.
        """
        rules = env.nki_platform_rules() if self.platform_rules is None else self.platform_rules
        if rules and not self.is_older:
            check(self.function)
        return rules

    def with_schedule(self, schedule: Sequence[Any]) -> Kernel:
        """Return the kernel with an order of instructions by name; `nki.analyze` follows it, and results do not change.

        Args:
            schedule: pairs of a name and the name, or names, that it runs after.

        Raises:
            ConfigError: an entry is no such pair, or names wait for each other.
        """
        return self.changed(schedule=edges_of(schedule))

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run it; inside another kernel, on that one's core."""
        if torch.compiler.is_dynamo_compiling():
            made = self if self.base is None else self.base
            results, _ = _call_in_frame(made, self.grid, args, kwargs)
            return results[0] if results else None
        if running():
            return self.function(*args, **kwargs)
        return _call(self, args, kwargs)


Call = tuple[tuple[Any, ...], Mapping[str, Any]]
Site = tuple[Callable[[Sequence[Any]], bool], Callable[[Kernel, tuple[Any, ...], Mapping[str, Any]], Any]]
SITES: list[Site] = []
"""Where kernels are called, but on the host: whether tensors are there, and the call. `jit.py` knows them."""


def _call(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensors = tensors_in((args, kwargs))
    for has, call in SITES:
        if has(tensors):
            return call(kernel, args, kwargs)
    return launch(kernel, args, kwargs)[0]


register_constant(Kernel)


def _with_input(
    kernel: Kernel, grid: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    """Call a kernel, and return a tensor in any case and None in none, because Dynamo takes no other calls."""
    result = _call(kernel if grid == kernel.grid else kernel.changed(grid=grid), args, kwargs)
    return () if result is None else (result,), tensors_in((args, kwargs))[0]


_call_in_frame = _with_input


def _keep_whole(dynamo: ModuleType) -> None:
    """Have Dynamo read no kernel: AOTAutograd traces the call, and the kernel becomes a node of its graph."""
    global _call_in_frame
    _call_in_frame = dynamo.nonstrict_trace(_with_input)


after_import("torch._dynamo", _keep_whole)


def simulate(kernel: Callable[..., Any]) -> Kernel:
    """Return a kernel that runs in this process, as every kernel does here."""
    return kernel if isinstance(kernel, Kernel) else Kernel(kernel)


def launch(
    kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, record: bool = False, strict: bool = False
) -> tuple[Any, list[Record]]:
    """Run a kernel, and return its results and, if it records, the stream of its first core."""
    result, cores = launch_on_cores(kernel, args, kwargs, record=record, strict=strict)
    return result, cores[0].stream or []


def launch_on_cores(
    kernel: Kernel,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    record: bool,
    strict: bool = False,
    computes: bool = True,
) -> tuple[Any, list[Core]]:
    """Run a kernel as `launch` does, and return its results and its cores, which all have a stream if it records."""
    results, cores = _launch(kernel, [(args, kwargs)], record=record, strict=strict, computes=computes)
    return results[0], cores[0]


def launch_ranks(
    kernel: Callable[..., Any], calls: Sequence[Any], *, record: bool = False
) -> list[Any] | tuple[list[Any], list[list[Record]]]:
    """Run a kernel on several ranks, which `nki.collectives` connects, and return the results of each.

    Args:
        kernel: the kernel; with a grid, each rank has its cores.
        calls: The arguments of each rank: a tuple, or a dict of arguments by name.
        record: Whether to return the stream of the first core of each rank too.

    Raises:
        KernelError: the kernel breaks a rule, or ranks do not call the same collectives.

    Example:
        ```python
        import torch

        from optimum_neuron.nki import collectives as ncc, jit, language as nl, launch_ranks


        @jit
        def gather(x):
            part = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
            out = nl.ndarray((2 * x.shape[0], x.shape[1]), x.dtype, buffer=nl.shared_hbm)
            nl.store(part, nl.load(x))
            ncc.all_gather([part], [out], ncc.ReplicaGroup([[0, 1]]), collective_dim=0)
            return out


        x = torch.randn(2, 64, 8)
        for result in launch_ranks(gather, [(x[0],), (x[1],)]):
            torch.testing.assert_close(result, x.reshape(128, 8))
        ```
    """
    ranks = [((), call) if isinstance(call, Mapping) else (tuple(call), {}) for call in calls]
    results, cores = _launch(simulate(kernel), ranks, record=record)
    return (results, [row[0].stream or [] for row in cores]) if record else results


def _launch(
    kernel: Kernel, calls: Sequence[Call], *, record: bool, strict: bool = False, computes: bool = True
) -> tuple[list[Any], list[list[Core]]]:
    """Run a kernel once for each rank, and return their results and cores."""
    target, precise = default_target(kernel.platform), env.nki_precise()
    rules = kernel.keeps_rules()
    if not kernel.is_older:
        _check_grid(kernel, target)
    world, places = World(size=len(calls)), list(itertools.product(*map(range, kernel.grid)))
    inputs: list[Arguments] = []
    cores: list[list[Core]] = []
    bodies: list[Callable[[], Any]] = []
    for rank_id, (args, kwargs) in enumerate(calls):
        own, grid = Arguments(precise), Grid(shape=kernel.grid)
        placed = [own.place(value, f"argument_{number}") for number, value in enumerate(args)]
        named = {name: own.place(value, name) for name, value in kwargs.items()}
        inputs.append(own)
        cores.append([])
        for place in places:
            core = Core(
                target=target,
                grid=grid,
                rank=place,
                precise=precise,
                strict=strict,
                computes=computes,
                stream=[] if record else None,
                ignores_addresses=kernel.ignores_addresses,
                platform_rules=rules,
                number=len(bodies),
                rank_id=rank_id,
                world=world,
            )
            cores[-1].append(core)
            bodies.append(functools.partial(_run, kernel, core, placed, named))
    values = world.turns.run(bodies)
    last = values[len(places) - 1 :: len(places)]
    pairs = zip(inputs, last, cores, strict=True)
    return [_finished(kernel, own, value, row[-1]) for own, value, row in pairs], cores


def _check_grid(kernel: Kernel, target: Target) -> None:
    """Check that a kernel runs on the cores of one logical core; the older API has grids of any size."""
    most, name = max(target.chip.lncs), kernel.function.__name__
    fits = len(kernel.grid) <= 1 and math.prod(kernel.grid) <= most
    require(fits, Rule.GRID, kernel=name, grid=[*kernel.grid], most=most, target=target.name)


def _run(kernel: Kernel, core: Core, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    with use(core):
        return kernel.function(*args, **kwargs)


def _finished(kernel: Kernel, inputs: Arguments, value: object, core: Core) -> Any:
    """Return what a kernel returned as arrays, after its writes to inputs."""
    inputs.write_back()
    if value is None and not inputs.changed:
        line, name = first_line(kernel.function), kernel.function.__name__
        require(not core.platform_rules, Rule.NO_RESULT, line=line, kernel=name)
        text = Rule.NO_RESULT.message.format(kernel=name) + quoted(line)
        warnings.warn(f"{text} {Rule.NO_RESULT.remedy}", UserWarning, stacklevel=2)
    with use(core):
        return inputs.results(value)
