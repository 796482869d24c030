"""Replicas of one program on several cores, and calls that run on them at once: data parallelism.

Each core has its own claim and charges; host memory has the weights once. It does not depend on batches: the caller
splits a batch into calls.

    copies = Copies(load_copies([0, 1], load, model="bert"))
    first, second = copies.run_all([("forward", [ids_of_core_0]), ("forward", [ids_of_core_1])])
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import CoreBusyError, DeviceMemoryError, NeuronError
from ..hardware import InstanceSpec
from .core_choice import num_usable, ranges
from .core_files import table
from .cores import CoreClaim, claim_cores
from .loaded import LoadedProgram

if TYPE_CHECKING:
    import torch

Part = TypeVar("Part")
Result = TypeVar("Result")
Core = TypeVar("Core", int, int | None)
Copy = TypeVar("Copy", LoadedProgram, CoreClaim)


class CoreThreads:
    """Threads that drive calls to several cores, in turn; they start with the first call.

    The threads of torch are divided among the cores, so that calls do not wait for each other on the host.
    """

    def __init__(self, num_cores: int, *, num_threads: int | None = None) -> None:
        self.num_cores = num_cores
        """Cores that calls go to."""
        self.num_threads = num_threads or num_cores
        """Threads; may be changed before the first call."""
        self._pool: ThreadPoolExecutor | None = None
        self._starting = threading.Lock()

    def map(self, call: Callable[[int, Part], Result], parts: Sequence[Part]) -> list[Result]:
        """Call `call(core, part)` for each part, cores counted from 0; results are in the order of the parts."""
        with self._starting:
            pool = self._pool = self._pool or self._started()
        calls = [pool.submit(call, index % self.num_cores, part) for index, part in enumerate(parts)]
        wait(calls)
        return [done.result() for done in calls]

    def close(self) -> None:
        """End the threads, after the calls that they run."""
        with self._starting:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _started(self) -> ThreadPoolExecutor:
        import torch

        num_all, all_started = torch.get_num_threads(), threading.Barrier(self.num_threads + 1)
        num_each = max(1, num_all // self.num_cores)

        def start() -> None:  # threads keep it, so it must not refer to `self`: they end when the pool is freed
            torch.set_num_threads(num_each)
            torch.get_num_threads()  # a thread takes the number over when it first asks
            all_started.wait()

        pool = ThreadPoolExecutor(self.num_threads, thread_name_prefix="NeuronCore", initializer=start)
        for _ in range(self.num_threads):
            pool.submit(int)  # starts a thread, as those before wait
        all_started.wait()
        torch.set_num_threads(num_all)  # theirs is also what threads get that start later
        return pool


class Copies:
    """One program on one or several cores."""

    def __init__(self, loaded: Sequence[LoadedProgram]) -> None:
        self.loaded = tuple(loaded)
        """The program on each core."""
        self._threads = CoreThreads(len(self.loaded))
        self._turns = itertools.cycle(self.loaded)

    @property
    def core_ids(self) -> tuple[int, ...]:
        """Cores of the instance that have a replica."""
        return tuple(core for loaded in self.loaded for core in loaded.claim.core_ids)

    def run_all(self, calls: Sequence[tuple[str, Sequence[torch.Tensor]]]) -> list[dict[str, Any]]:
        """Run calls of entry points, on all cores at once; results are in the order of the calls."""
        if len(self.loaded) == 1 or len(calls) == 1:
            return [_run(next(self._turns), graph, inputs) for graph, inputs in calls]
        for loaded in self.loaded:  # before threads start: they would not be ended
            loaded.require_open()
        return self._threads.map(lambda core, call: _run(self.loaded[core], *call), calls)

    def close(self) -> None:
        """Free the HBM and the cores of all replicas, and end the threads. Calling it again does nothing."""
        for loaded in self.loaded:
            loaded.close()
        self._threads.close()


def _run(loaded: LoadedProgram, graph: str, inputs: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Run a graph that keeps nothing; every graph of a program that has states takes a set of them."""
    if not loaded.program.states:
        return loaded.run(graph, inputs)
    state = loaded.take_state()
    try:
        return loaded.run(graph, inputs, state)
    finally:
        loaded.give_back(state)


def load_copies(cores: Sequence[Core], load: Callable[[Core], LoadedProgram], *, model: str) -> list[LoadedProgram]:
    """Load one program on each of some cores, or on none of them.

    Args:
        cores: Counted from 0 among those that the process may use; None takes the least loaded.
        load: loads it on a core.
        model: its name, for messages.
    """
    return _on_each(cores, load, LoadedProgram.close, lambda copy: copy.claim.core_ids, model)


@contextlib.contextmanager
def claimed(instance: InstanceSpec, *, model: str, num_cores: int = 1, every_core: bool = False) -> Iterator[CoreClaim]:
    """Claim the core of a model before the work that takes minutes, so that busy cores are reported at once.

    The claim is released if the block raises; otherwise it belongs to the program that the block loaded with it.

    Args:
        instance: the simulated instance.
        model: its name, for messages.
        num_cores: cores that share the model.
        every_core: also hold every core that the process may use until the block ends, for replicas.

    Raises:
        CoreBusyError: other processes hold the cores.
    """
    cores = range(num_usable(instance, os.environ)) if every_core else ()

    def claim_core(core: int) -> CoreClaim:
        return claim_cores(instance, model=model, start=core)

    with contextlib.ExitStack() as held:
        for one in _on_each(cores, claim_core, CoreClaim.release, lambda claim: claim.core_ids, model):
            held.enter_context(one)
        claim = claim_cores(instance, model=model, num_cores=num_cores)
        try:
            yield claim
        except BaseException:
            claim.release()
            raise


def _on_each(
    cores: Sequence[Core],
    take: Callable[[Core], Copy],
    drop: Callable[[Copy], None],
    core_ids: Callable[[Copy], Sequence[int]],
    model: str,
) -> list[Copy]:
    """Take every core or none; the error names the holders of all busy cores."""
    copies: list[Copy] = []
    busy: list[CoreBusyError] = []
    try:
        for core in cores:
            try:
                copies.append(take(core))
            except CoreBusyError as error:
                busy.append(error)
        if len(cores) == 1 and busy:
            raise busy[0]
        if busy:
            raise _busy(busy, [core for copy in copies for core in core_ids(copy)], len(cores), model)
    except NeuronError as error:
        for copy in copies:
            drop(copy)
        if isinstance(error, DeviceMemoryError) and copies:
            raise _no_room(error, len(copies), len(cores)) from error
        raise
    return copies


def _no_room(error: DeviceMemoryError, num_fitting: int, num_copies: int) -> DeviceMemoryError:
    hint = f"Load at most {num_fitting} of the {num_copies} replicas on these cores, or simulate a larger instance."
    return DeviceMemoryError(error.message, hint=hint, **error.details, num_copies=num_copies, num_fitting=num_fitting)


def _busy(errors: Sequence[CoreBusyError], free: Sequence[int], num_copies: int, model: str) -> CoreBusyError:
    holders = {row["core_id"]: row for error in errors for row in error.details["holders"]}
    rows = [holders[core] for core in sorted(holders)]
    variables = [f"NEURON_RT_VISIBLE_CORES={ranges(free)}"] if free else []
    fewer = f", or set {variables[0]} for {len(free)} of them" if variables else ""
    message = f"{num_copies} replicas of '{model}' need a core each, but others hold {ranges(holders)}.\n{table(rows)}"
    hint = f"End a process of the table, which frees its cores at once{fewer}."
    return CoreBusyError(message, hint=hint, num_copies=num_copies, holders=rows, variables=variables)
