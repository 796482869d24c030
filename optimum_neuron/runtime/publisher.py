"""Reports to other processes, once a second, how this one uses its cores: HBM, loaded models, calls.

A thread does it, not the calls themselves: torch's tensors come and go without a call, the last calls of a burst would
not be reported, and a call costs nothing more this way. It starts with the first claim, ends with the last, keeps no
process alive and is not in forked children. `status.py` has the content.

    from optimum_neuron.runtime.publisher import PUBLISHER

    PUBLISHER.wake()  # now, for changes that should not wait a second
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from ..base import env
from ..errors import ConfigError
from ..hardware import InstanceSpec
from .core_process import PROCESS
from .hbm import ledger
from .hooks import HOOKS, CallCost
from .observers import OBSERVERS
from .status import CoreStatus, GraphStatus, ModelStatus, Status, is_watched, status_path, write_status
from .timeline import TIMELINE, Track

logger = logging.getLogger(__name__)

T = TypeVar("T")

INTERVAL_S = 1.0
"""Time between two statuses."""


class Publisher:
    """Writes the statuses of this process, one for each instance of which it holds cores."""

    def __init__(self) -> None:
        self._instances: dict[Path, InstanceSpec] = {}
        self._costs: weakref.WeakKeyDictionary[Track, dict[str, CallCost | None]] = weakref.WeakKeyDictionary()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._awake = threading.Event()
        self._closed = False
        self._warned = False

    def start(self, folder: Path, instance: InstanceSpec) -> None:
        """Report the claims of this process in a folder, for as long as there are any."""
        with self._lock:
            if folder not in self._instances:
                _remove_dead(folder)
                self._instances[folder] = instance
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="NeuronStatus", daemon=True)
                self._thread.start()

    def wake(self) -> None:
        """Write the statuses now; it happens in the thread, as renaming a file can take milliseconds."""
        self._awake.set()

    def close(self) -> None:
        """Remove the statuses and wait for the thread, at exit."""
        with self._lock:
            self._closed = True
            self.wake()
            thread = self._thread
            for folder in self._instances:
                _remove(status_path(folder, os.getpid()))
        # Python ends daemon threads at exit by force. In C++ code of torch, that calls std::terminate.
        if thread is not None:
            thread.join()

    def forget(self) -> None:
        """Reset in a forked child: the thread is not in it, and the claims are the parent's."""
        self.__init__()  # type: ignore[misc]

    def _run(self) -> None:
        try:
            while self._has_claims():
                self._awake.wait(INTERVAL_S)
                self._awake.clear()
        except BaseException:
            # Python prints it; the next claim starts another thread.
            with self._lock:
                self._thread = None
            raise

    def _has_claims(self) -> bool:
        """Write the statuses; False if there are none, which ends the thread."""
        self._count_costs()
        with self._lock:
            self._write_all()
            if not self._instances or self._closed:
                self._thread = None
                return False
        return True

    def _write_all(self) -> None:
        held = {entry.folder for entry in list(PROCESS.claims.values())}
        for folder in [folder for folder in self._instances if folder not in held]:
            del self._instances[folder]
            _remove(status_path(folder, os.getpid()))
        for folder, instance in self._instances.items():
            if not self._closed:
                self._write(folder, instance)

    def _write(self, folder: Path, instance: InstanceSpec) -> None:
        try:
            write_status(folder, self._status(folder, instance))
        except ConfigError as error:
            # Models run as well without it. Once is enough: a full disk does not get emptier by warnings.
            if not self._warned:
                logger.warning("neuron-top and neuron-monitor do not see this process: %s", error)
            self._warned = True

    def _count_costs(self) -> None:
        """Time calls while a tool watches: some tenths of a second, once for each graph, without a lock."""
        watched = {instance.name for folder, instance in list(self._instances.items()) if is_watched(folder)}
        OBSERVERS.watch(self, bool(watched))
        if watched:
            OBSERVERS.collect()
        for track in TIMELINE.tracks():
            if self._closed:
                return
            if track.instance.name in watched:
                costs = self._costs.setdefault(track, {})
                costs.update({graph: HOOKS.call_cost(track, graph) for graph in track.num_calls if graph not in costs})

    def _status(self, folder: Path, instance: InstanceSpec) -> Status:
        held = [entry.core_ids for entry in list(PROCESS.claims.values()) if entry.folder == folder]
        ledgers = {core: ledger(instance, core) for core in sorted({core for cores in held for core in cores})}
        tracks = [track for track in TIMELINE.tracks() if track.instance.name == instance.name]
        errors: Counter[str] = Counter()
        for track in tracks:
            errors.update(track.errors)
        return Status(
            pid=os.getpid(),
            tag=env.process_tag() or str(os.getpid()),
            at_s=time.monotonic(),
            cores=_tuple(
                CoreStatus(core_id=core, capacity_bytes=hbm.capacity_bytes, hbm_bytes=hbm.used_by_owner())
                for core, hbm in ledgers.items()
            ),
            models=_tuple(
                ModelStatus(
                    model_id=track.number,
                    name=track.model,
                    core_ids=track.core_ids,
                    running_us=track.running_us,
                    graphs=_graphs(track, self._costs.get(track, {})),
                )
                for track in tracks
            ),
            errors=dict(errors),
        )


def _graphs(track: Track, costs: dict[str, CallCost | None]) -> tuple[GraphStatus, ...]:
    host_us, fields = track.host_us, ("device_us", "launch_us", "flops")
    unknown = dict.fromkeys(fields)
    simulated = {graph: {name: getattr(cost, name) for name in fields} for graph, cost in costs.items() if cost}
    return _tuple(
        GraphStatus(name=graph, num_calls=num_calls, host_us=host_us.get(graph, 0.0), **simulated.get(graph, unknown))
        for graph, num_calls in track.num_calls.items()
    )


def _tuple(items: Iterable[T]) -> tuple[T, ...]:
    # Python 3.11's `tuple(generator)` raises SystemError where another thread sees the unfinished tuple: all that call
    # `gc.get_objects()`, such as memory profilers. A list is converted at once.
    return tuple(list(items))


def _remove_dead(folder: Path) -> None:
    """Remove leftovers of killed processes; readers ignore them anyway."""
    # The second kind belongs to a process that was killed while it wrote, see `atomic.py`.
    for path in (*folder.glob("*.status"), *folder.glob(".*.status.*.tmp")):
        pid = path.name.removeprefix(".").partition(".")[0]
        if pid.isdecimal() and not _lives(int(pid)):
            _remove(path)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


PUBLISHER = Publisher()
atexit.register(PUBLISHER.close)
os.register_at_fork(after_in_child=PUBLISHER.forget)
