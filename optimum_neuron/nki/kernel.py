"""`@nki.jit` and `nki.simulate`: kernels called with NumPy arrays and torch tensors.

Arguments that are arrays become tensors in HBM and share their memory, so a kernel that writes an input changes the
caller's array. Other arguments pass through. Results are torch tensors if an argument was one, and NumPy arrays if not.
`kernel[n](...)` runs once for each place of a grid, in turns: a core runs until it waits for another one or ends. Cores
of one launch share `nl.shared_hbm`.
A kernel called by another runs on its core.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .. import env
from ..errors import ConfigError, KernelError
from .core import Core, Grid, Record, current, default_target, refuse_exchanged, running, use
from .dtypes import FORMATS, dtype_name
from .memory import Buffer, Storage
from .platform import check
from .scheduling import Edge, edges_of
from .tensor import NkiTensor
from .world import World


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A function that runs on a simulated core."""

    function: Callable[..., Any]
    """The kernel's Python."""
    grid: tuple[int, ...] = ()
    """Sizes of the grid; () for one core."""
    platform: str | None = None
    """Target that it is written for; None leaves it to the environment."""
    ignores_addresses: bool = False
    """Whether tiles that it places are left to the compiler."""
    platform_rules: bool | None = None
    """Whether Python that the hardware's compiler does not take is refused; None leaves it to the environment."""
    schedule: tuple[Edge, ...] = ()
    """Names of instructions, with the names that they wait for."""
    is_older: bool = False
    """Whether it is one of the older API, whose compiler ran the kernel's Python."""

    def __post_init__(self) -> None:
        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(self.function, name):
                object.__setattr__(self, name, getattr(self.function, name))

    def __getitem__(self, grid: Any) -> Kernel:
        """Return the kernel for a grid, as in `kernel[2](x)`."""
        items = grid if isinstance(grid, tuple | list) else (grid,)
        sizes = tuple(size if isinstance(size, int) else operator.index(size) for size in items)
        return dataclasses.replace(self, grid=sizes)

    def with_schedule(self, schedule: Sequence[Any]) -> Kernel:
        """Return the kernel with an order of instructions by name; `nki.analyze` follows it, and results do not change.

        Args:
            schedule: pairs of a name and the name, or names, that it runs after.

        Raises:
            ConfigError: an entry is no such pair, or names wait for each other.
        """
        return dataclasses.replace(self, schedule=edges_of(schedule))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it; inside another kernel, on that one's core."""
        if running():
            return self.function(*args, **kwargs)
        return launch(self, args, kwargs)[0]


def jit(fn: Callable[..., Any] | None = None, *, platform_rules: bool | None = None, **kwargs: Any) -> Any:
    """Make a kernel of a function, as `@nki.jit` or `@nki.jit(...)`.

    Args:
        fn: the function.
        platform_rules: Whether Python that the hardware's compiler does not take is refused (default: what
            OPTIMUM_NEURON_NKI_PLATFORM_RULES says; no).
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
        return functools.partial(jit, platform_rules=platform_rules)
    made = simulate(fn)
    return made if platform_rules is None else dataclasses.replace(made, platform_rules=platform_rules)


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


Call = tuple[tuple[Any, ...], Mapping[str, Any]]


def _launch(
    kernel: Kernel, calls: Sequence[Call], *, record: bool, strict: bool = False, computes: bool = True
) -> tuple[list[Any], list[list[Core]]]:
    """Run a kernel once for each rank, and return their results and cores."""
    target, precise = default_target(kernel.platform), env.nki_precise()
    rules = env.nki_platform_rules() if kernel.platform_rules is None else kernel.platform_rules
    if rules and not kernel.is_older:
        check(kernel.function)
    world, places = World(size=len(calls)), list(itertools.product(*map(range, kernel.grid)))
    inputs: list[_Inputs] = []
    cores: list[list[Core]] = []
    bodies: list[Callable[[], Any]] = []
    for rank_id, (args, kwargs) in enumerate(calls):
        own, grid = _Inputs(precise), Grid(shape=kernel.grid)
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
    values = [bodies[0]()] if len(bodies) == 1 else world.turns.run(bodies)
    last = values[len(places) - 1 :: len(places)]
    pairs = zip(inputs, last, cores, strict=True)
    return [_finished(kernel, own, value, row[-1]) for own, value, row in pairs], cores


def _run(kernel: Kernel, core: Core, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    with use(core):
        return kernel.function(*args, **kwargs)


def _finished(kernel: Kernel, inputs: _Inputs, value: Any, core: Core) -> Any:
    """Return what a kernel returned as arrays, after its writes to inputs."""
    inputs.write_back()
    if value is None and not inputs.changed:
        message = f"The kernel {kernel.function.__name__} returned nothing and wrote no input."
        raise KernelError(message, hint="Return the tensors in nl.shared_hbm that it wrote.", rule="result")
    with use(core):
        return inputs.results(value)


class _Inputs:
    """The arrays of one call, as tensors in HBM."""

    def __init__(self, precise: bool) -> None:
        self.precise = precise
        self.is_torch = False
        self.placed: list[tuple[NkiTensor, torch.Tensor, int]] = []

    def place(self, value: Any, name: str) -> Any:
        """Return an array as a tensor in HBM that shares its memory, and anything else as it is."""
        if isinstance(value, list | tuple) and any(isinstance(item, np.ndarray | torch.Tensor) for item in value):
            return type(value)(self.place(item, f"{name}_{number}") for number, item in enumerate(value))
        if not isinstance(value, np.ndarray | torch.Tensor):
            return value
        self.is_torch |= isinstance(value, torch.Tensor)
        dtype = dtype_name(value.dtype)
        host = value.detach() if isinstance(value, torch.Tensor) else _as_torch(value, dtype)
        row, base = FORMATS[dtype], host
        if not self.precise and row.is_float:
            base = host.float()
        elif host.dtype != row.storage:
            base = host.to(row.storage)
        base = base.contiguous()
        storage = Storage(base, Buffer.hbm, row, tuple(host.shape), name, "", self.precise)
        tensor = NkiTensor(storage)
        self.placed.append((tensor, host, base._version))
        return tensor

    @property
    def changed(self) -> bool:
        """Whether the kernel wrote an input."""
        return any(tensor.storage.base._version != version for tensor, _, version in self.placed)

    def write_back(self) -> None:
        """Copy what the kernel wrote to inputs that could not share their memory."""
        for tensor, host, version in self.placed:
            base = tensor.storage.base
            if base._version != version and base.data_ptr() != host.data_ptr():
                host.copy_(base)

    def results(self, value: Any) -> Any:
        """Return tensors of the kernel as arrays."""
        if isinstance(value, list | tuple):
            return tuple(self.results(item) for item in value)
        if isinstance(value, dict):
            return {key: self.results(item) for key, item in value.items()}
        if not isinstance(value, NkiTensor):
            return value
        if value.buffer.is_on_chip:
            message = f"The kernel returned {value.name}, which is in {value.buffer.value}."
            raise KernelError(message, hint="Copy it to a tensor in nl.shared_hbm, and return that.", rule="result")
        line = current().exchanged.get(value.storage.number)
        if line is not None:
            refuse_exchanged(value.name, line)
        for tensor, host, _ in self.placed:
            if tensor.storage is value.storage and value.shape == tensor.shape:
                return host if self.is_torch else _as_numpy(host, value.dtype)
        data = value.read().clone()
        return data if self.is_torch else _as_numpy(data, value.dtype)


def _as_torch(array: np.ndarray, dtype: str) -> torch.Tensor:
    """Return NumPy's memory as a tensor of torch, also for dtypes that NumPy takes from ml_dtypes."""
    if not array.flags.writeable:
        array = array.copy()
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    bits = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
    return torch.from_numpy(bits).view(getattr(torch, dtype))


def _as_numpy(data: torch.Tensor, dtype: str) -> np.ndarray:
    """Return a tensor of torch as an array of the same dtype.

    Raises:
        KernelError: NumPy has no such dtype, and ml_dtypes is not installed.
    """
    if hasattr(np, str(data.dtype).removeprefix("torch.")):
        return data.numpy()
    try:
        import ml_dtypes
    except ImportError as error:
        message = f"NumPy has no {dtype}, which the kernel returned."
        raise KernelError(message, hint="pip install ml_dtypes, or pass torch tensors.", rule="dtype") from error
    bits = data.view(torch.int16 if data.dtype.itemsize == 2 else torch.uint8).numpy()
    return bits.view(getattr(ml_dtypes, str(data.dtype).removeprefix("torch.")))
