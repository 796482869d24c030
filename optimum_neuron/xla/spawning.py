"""Processes with a core each: `xmp.spawn` and `torch_xla.launch`.

`spawn` starts NEURONCORE_NUM_DEVICES processes on this machine; torchrun starts them itself, on several machines too.

    >>> launch(print, ("step",), debug_single_process=True)
    0 step
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.multiprocessing

from ..base import env
from ..device import placement
from ..errors import ConfigError, CoreBusyError
from . import library, links
from .ordinals import global_ordinal

Result = TypeVar("Result")


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> Any:
    """Call a function in several processes, each with a core: `fn(rank, *args)`.

    Args:
        fn: the function; a module has to have it, unless processes are forked.
        args: its further arguments.
        nprocs: 1: call it in this process; None: start NEURONCORE_NUM_DEVICES processes.
        join: wait for the end of all.
        daemon: let them end with this process.
        start_method: "spawn", "fork", or "forkserver".

    Returns:
        None, or the processes without `join`.

    Raises:
        ConfigError: another number of processes.
        CoreBusyError: this process has used the device before, so its core is not free.
        ProcessRaisedException: the function failed in a process; the others are stopped.
    """
    if nprocs == 1:
        return fn(global_ordinal(), *args)
    if nprocs is not None:
        message = f"nprocs is {nprocs}, but it is 1, or None for NEURONCORE_NUM_DEVICES processes."
        raise ConfigError(message, hint=f"Set NEURONCORE_NUM_DEVICES={nprocs}, and pass nprocs=None.", value=nprocs)
    if placement.claimed():
        message = "This process has used the device, so a process that it starts finds its core busy."
        raise CoreBusyError(message, hint="Use the device only in the function that `spawn` calls.")
    count = env.num_spawned()
    # This process keeps the store, because each of the others may end first.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "spawn"}
    started: list[Any] = []
    for rank in range(count):
        variables = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        # A process reads them when it imports the script, before it calls the function.
        with env.inherited(variables):
            started.append(
                torch.multiprocessing.start_processes(
                    _run, (fn, rank, args, variables), join=False, daemon=daemon, start_method=start_method
                )
            )
    processes = torch.multiprocessing.ProcessContext(
        [process for one in started for process in one.processes], [file for one in started for file in one.error_files]
    )
    processes.store = store
    if not join:
        return processes
    while not processes.join():
        pass
    return None


def _run(index: int, fn: Callable[..., Any], rank: int, args: tuple[Any, ...], variables: dict[str, str]) -> None:
    os.environ.update(variables)
    library.follow_rank()
    try:
        fn(rank, *args)
    finally:
        links.leave()  # forks do not call what is registered for the exit


def launch(
    fn: Callable[..., Any], args: tuple[Any, ...] = (), start_method: str = "spawn", debug_single_process: bool = False
) -> None:
    """Call a function in this process of torchrun, or start processes that do.

    Args:
        fn: called as `fn(local_rank, *args)`.
        args: its further arguments.
        start_method: as of `spawn`.
        debug_single_process: without torchrun, call it in this process.
    """
    rank = env.local_rank()
    if rank is not None:
        fn(rank, *args)
    else:
        spawn(fn, args, nprocs=1 if debug_single_process else None, start_method=start_method)


class MpModelWrapper:
    """A model of the parent process that forked processes move to their devices one after the other.

    Args:
        model: the model, on the CPU.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._lock = torch.multiprocessing.Lock()

    def to(self, device: str | torch.device) -> torch.nn.Module:
        """Return the model, moved to a device.

        Args:
            device: the device.
        """
        with self._lock:
            return self._model.to(device)


class MpSerialExecutor:
    """Calls functions in one process at a time: created before processes start, used in all of them."""

    def __init__(self) -> None:
        self._lock = torch.multiprocessing.Lock()

    def run(self, fn: Callable[[], Result]) -> Result:
        """Call a function while no other process calls one.

        Args:
            fn: the function.
        """
        with self._lock:
            return fn()
