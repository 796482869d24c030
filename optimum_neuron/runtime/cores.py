"""Claims on simulated NeuronCores: a core belongs to one process at a time, as on the real machine.

A process claims the cores that a model needs and no others. Several models of one process may share a core; whether
they fit is the ledger's business (`hbm.py`). It knows nothing of programs and weights.

    from optimum_neuron.hardware import resolve_instance
    from optimum_neuron.runtime.cores import claim_cores

    with claim_cores(resolve_instance("inf2.xlarge").value, model="bert") as claim:
        print(claim.core_ids, claim.choice.reason)
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import dataclasses
import itertools
import math
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from .. import env
from ..core import Choice, Rejected
from ..errors import ConfigError, CoreBusyError, refusal
from ..hardware import TARGETS, InstanceSpec, legal_core_counts, require_core_count
from . import core_files

Cores = tuple[int, ...]


class CoreClaim:
    """Simulated cores held for one model; made by `claim_cores`.

    They are freed by `release`, at the end of a `with` block, with the last reference, at exit, or by the kernel when
    the process is killed. A forked child has no part in them: there, `held` is False and `release` does nothing.
    """

    def __init__(self, *, instance: InstanceSpec, model: str, choice: Choice[Cores], token: int) -> None:
        self.instance = instance
        """The simulated instance."""
        self.model = model
        """Name of the model that the cores are for."""
        self.choice = choice
        """The cores and why these."""
        self._token = token
        self._finalizer = weakref.finalize(self, _PROCESS.release, token)
        # At exit `_Process.close` frees everything.
        self._finalizer.atexit = False

    @property
    def core_ids(self) -> Cores:
        """Ids of the cores on the instance, ascending."""
        return self.choice.value

    @property
    def held(self) -> bool:
        """Whether this process still has the cores."""
        return self._token in _PROCESS.claims

    def release(self) -> None:
        """Give the cores back; calling it again does nothing."""
        self._finalizer()

    def __enter__(self) -> CoreClaim:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        self.release()

    def __repr__(self) -> str:
        state = "held" if self.held else "released"
        return f"CoreClaim({self.model!r}, cores {_ranges(self.core_ids)} of {self.instance.name}, {state})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Entry:
    """A claim as the registry of the process knows it."""

    folder: Path
    core_ids: Cores
    model: str | None
    """None where the cores are kept for models to come."""
    record: Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Allowed:
    """The cores that the environment leaves to this process."""

    core_ids: Cores
    origin: str
    num_reserved: int | None = None
    """How many of them the process takes up front."""


class _Process:
    """All claims of this process.

    Finalizers may run at any moment, also while this very thread holds `mutex`. So `release` never waits for it: where
    it is held, whoever holds it closes the files when it is done.
    """

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.claims: dict[int, _Entry] = {}
        self.locks: dict[tuple[Path, int], int] = {}
        self.reserved: dict[Path, Cores] = {}
        self.last: dict[Path, int] = {}
        self.tokens = itertools.count(1)
        self.changed = False

    @contextlib.contextmanager
    def alone(self, folder: Path) -> Iterator[None]:
        """No other thread or process touches claims on the instance meanwhile."""
        try:
            with self.mutex, core_files.exclusive(folder):
                try:
                    yield
                finally:
                    self._close_unused()
        finally:
            self._sweep()

    def add(self, folder: Path, core_ids: Cores, model: str | None) -> int:
        """Register a claim on cores that are locked already."""
        token = next(self.tokens)
        record = folder / f"{os.getpid()}-{token}.json"
        core_files.write_record(record, core_ids, model)
        self.claims[token] = _Entry(folder=folder, core_ids=core_ids, model=model, record=record)
        return token

    def release(self, token: int) -> None:
        """Forget a claim; cores without any are freed."""
        entry = self.claims.pop(token, None)
        if entry is None:
            return
        self.changed = True
        try:
            entry.record.unlink(missing_ok=True)
        finally:
            self._sweep()

    def take(self, folder: Path, placements: Sequence[Cores]) -> Cores | None:
        """Lock the first placement that no other process has a part in; what is locked in vain is closed later."""
        return next((cores for cores in placements if all(self._lock(folder, core) for core in cores)), None)

    def loads(self, folder: Path) -> collections.Counter[int]:
        """Number of models by core."""
        entries = list(self.claims.values())
        return collections.Counter(core for entry in entries if entry.folder == folder and entry.model is not None
                                   for core in entry.core_ids)

    def own(self, folder: Path) -> set[int]:
        """Cores that this process has locked."""
        return {core for place, core in self.locks if place == folder}

    def close(self) -> None:
        """Release everything, at exit."""
        for token in list(self.claims):
            self.release(token)

    def forget(self) -> None:
        """In a forked child: nothing is ours.

        The inherited descriptors have to go, or the cores would stay locked for as long as the child outlives its
        parent. Closing a copy does not unlock.
        """
        for descriptor in self.locks.values():
            os.close(descriptor)
        for state in (self.claims, self.locks, self.reserved, self.last):
            state.clear()
        self.mutex.release()

    def _lock(self, folder: Path, core_id: int) -> bool:
        if (folder, core_id) not in self.locks:
            descriptor = core_files.lock_core(folder, core_id)
            if descriptor is None:
                return False
            self.locks[folder, core_id] = descriptor
        return True

    def _close_unused(self) -> None:
        self.changed = False
        used = {(entry.folder, core) for entry in list(self.claims.values()) for core in entry.core_ids}
        for key in [key for key in self.locks if key not in used]:
            os.close(self.locks.pop(key))

    def _sweep(self) -> None:
        # The loop is for a release that comes between the last look at `changed` and the end of the mutex.
        while self.changed and self.mutex.acquire(blocking=False):
            try:
                self._close_unused()
            finally:
                self.mutex.release()


_PROCESS = _Process()
atexit.register(_PROCESS.close)
os.register_at_fork(before=_PROCESS.mutex.acquire, after_in_parent=_PROCESS.mutex.release,
                    after_in_child=_PROCESS.forget)


def claim_cores(instance: InstanceSpec, *, model: str, num_cores: int = 1, environ: Mapping[str, str] = os.environ
                ) -> CoreClaim:
    """Claim cores of the simulated instance for one model: the least loaded ones, in turn where several are.

    Several cores are neighbours and start where the instance can place such a job.

    Args:
        instance: the simulated instance.
        model: name of the model, told to processes that find the cores taken.
        num_cores: logical cores that the model runs on together.
        environ: environment variables; NEURON_RT_VISIBLE_CORES and NEURON_RT_NUM_CORES limit the choice.

    Raises:
        CoreBusyError: other processes hold the cores; the message has the table of holders.
        ConfigError: the instance or the environment has no place for so many cores.

    Example:
        ```python
        import tempfile
        from optimum_neuron.hardware import resolve_instance
        from optimum_neuron.runtime.cores import claim_cores

        environ = {"OPTIMUM_NEURON_HOME": tempfile.mkdtemp(), "NEURON_RT_VISIBLE_CORES": "1"}
        with claim_cores(resolve_instance("inf2.xlarge").value, model="bert", environ=environ) as claim:
            assert claim.core_ids == (1,)
        ```
    """
    require_core_count(instance, num_cores)
    allowed = _allowed(instance, environ)
    if not _placements(instance, allowed.core_ids, num_cores) or num_cores > (allowed.num_reserved or num_cores):
        raise _no_place(instance, allowed, num_cores)
    folder = _folder(instance, environ)
    with _PROCESS.alone(folder):
        if allowed.num_reserved is not None:
            allowed = _reserve(instance, folder, allowed, allowed.num_reserved, num_cores)
        loads = _PROCESS.loads(folder)
        ranked = _ranked(_placements(instance, allowed.core_ids, num_cores), loads, _PROCESS.last.get(folder, -1))
        cores = _PROCESS.take(folder, ranked)
        if cores is None:
            raise _busy(instance, folder, allowed, num_cores, model)
        choice = _explained(cores, ranked, loads, instance, allowed)
        token = _PROCESS.add(folder, cores, model)
        _PROCESS.last[folder] = cores[-1]
        return CoreClaim(instance=instance, model=model, choice=choice, token=token)


def held_cores(instance: InstanceSpec, *, environ: Mapping[str, str] = os.environ) -> list[core_files.Row]:
    """Who holds which core of the simulated instance, this process included.

    Returns:
        One row per core and model: core_id, pid, model (None: kept for models to come), since (ISO 8601, UTC) and
        command. What cannot be known is None.

    Raises:
        ConfigError: the folder of the claims cannot be used.
    """
    folder = _folder(instance, environ)
    if not folder.exists():
        return []
    with _PROCESS.alone(folder):
        return core_files.read_rows(folder, range(instance.num_logical_cores()), _PROCESS.own(folder))


def _folder(instance: InstanceSpec, environ: Mapping[str, str]) -> Path:
    return (env.home(environ) / "cores" / instance.name).absolute()


def _allowed(instance: InstanceSpec, environ: Mapping[str, str]) -> _Allowed:
    total = instance.num_logical_cores()
    every = tuple(range(total))
    visible, count = env.visible_cores(environ), env.num_cores(environ)
    if visible is not None:
        asked = f"NEURON_RT_VISIBLE_CORES={_ranges(visible)}"
        unknown = [core for core in visible if core >= total]
        if unknown:
            raise ConfigError(
                refusal(asked=asked, found=f"{instance.name} has no core {_ranges(unknown)}",
                        why=f"its cores are {_ranges(every)}", do="name some of these, or simulate a larger instance"),
                details={"unknown": unknown, "num_cores": total})
        ignored = "" if count is None else f", which has precedence over NEURON_RT_NUM_CORES={count}"
        return _Allowed(core_ids=tuple(sorted(visible)), origin=f"allowed by {asked}{ignored}")
    if count is None:
        return _Allowed(core_ids=every, origin=f"of {instance.name}")
    if count > total:
        raise ConfigError(
            refusal(asked=f"NEURON_RT_NUM_CORES={count}", found=f"{instance.name} has {total} cores",
                    why="a process cannot have more", do=f"set it to {total} or less, or simulate a larger instance"),
            details={"num_cores": total})
    return _Allowed(core_ids=every, origin=f"that NEURON_RT_NUM_CORES={count} keeps for this process",
                    num_reserved=count or total)


def _reserve(instance: InstanceSpec, folder: Path, allowed: _Allowed, count: int, num_cores: int) -> _Allowed:
    """What NEURON_RT_NUM_CORES leaves: the cores that the process takes at its first claim and keeps."""
    kept = _PROCESS.reserved.get(folder)
    if kept is None:
        runs = [run for run in _placements(instance, allowed.core_ids, count)
                if _placements(instance, run, num_cores)]
        kept = _PROCESS.take(folder, _ranked(runs, _PROCESS.loads(folder), -1))
        if kept is None:
            raise _busy(instance, folder, allowed, count, f"NEURON_RT_NUM_CORES={count}")
        _PROCESS.add(folder, kept, None)
        _PROCESS.reserved[folder] = kept
    if len(kept) != count:
        raise ConfigError(refusal(
            asked=f"NEURON_RT_NUM_CORES={count}", found=f"this process already keeps cores {_ranges(kept)}",
            why="the variable takes effect at the first claim", do="set it before the first model is loaded"))
    allowed = dataclasses.replace(allowed, core_ids=kept)
    if not _placements(instance, kept, num_cores):
        raise _no_place(instance, allowed, num_cores)
    return allowed


def _placements(instance: InstanceSpec, core_ids: Sequence[int], num_cores: int) -> list[Cores]:
    """Runs of neighbouring cores that a job may take; counts that are no legal job may start anywhere."""
    legal = legal_core_counts(instance)
    step = 1
    if num_cores in legal.counts and num_cores > 1:
        # Without alignment a job takes whole chips, so every legal count is a multiple of a chip's cores.
        step = num_cores if legal.aligned else math.gcd(*(count for count in legal.counts if count > 1))
    present = set(core_ids)
    runs = (tuple(range(start, start + num_cores)) for start in sorted(present) if start % step == 0)
    return [run for run in runs if present.issuperset(run)]


def _ranked(placements: Sequence[Cores], loads: Mapping[int, int], last: int) -> list[Cores]:
    """Least loaded first; among equals those after the last one given out."""
    return sorted(placements, key=lambda run: (_load(run, loads), run[0] <= last, run[0]))


def _load(run: Cores, loads: Mapping[int, int]) -> int:
    return sum(loads.get(core, 0) for core in run)


def _explained(cores: Cores, ranked: Sequence[Cores], loads: Mapping[int, int], instance: InstanceSpec,
               allowed: _Allowed) -> Choice[Cores]:
    load, place = _load(cores, loads), ranked.index(cores)
    rejected = [Rejected(candidate=_ranges(run), reason="held by another process") for run in ranked[:place]]
    rejected += [Rejected(candidate=_ranges(run), reason=f"{_load(run, loads)} models of this process are there")
                 for run in ranked[place:] if _load(run, loads) > load]
    reason = (f"the least loaded ({load} models of this process) and next in turn of the {len(allowed.core_ids)} cores "
              f"{allowed.origin}")
    if len(allowed.core_ids) == instance.num_logical_cores() and allowed.num_reserved is None:
        reason += ("; only the cores that a model needs are claimed, where the real runtime claims all of them unless "
                   "NEURON_RT_NUM_CORES or NEURON_RT_VISIBLE_CORES is set")
    return Choice(value=cores, reason=reason, rejected=tuple(rejected))


def _no_place(instance: InstanceSpec, allowed: _Allowed, num_cores: int) -> ConfigError:
    have = len(allowed.core_ids) if allowed.num_reserved is None else allowed.num_reserved
    return ConfigError(
        refusal(asked=f"num_cores={num_cores} on {instance.name}", found=f"no place among the {have} cores "
                f"{allowed.origin}", why=f"a job takes neighbouring cores: {legal_core_counts(instance).rule}",
                do=f"allow cores such as {_ranges(range(num_cores))}, or unset the variable"),
        details={"num_cores": num_cores, "allowed": list(allowed.core_ids)})


def _busy(instance: InstanceSpec, folder: Path, allowed: _Allowed, num_cores: int, purpose: str) -> CoreBusyError:
    own = _PROCESS.own(folder)
    rows = core_files.read_rows(folder, range(instance.num_logical_cores()), own)
    others = [row for row in rows if row["core_id"] not in own]
    held = {row["core_id"] for row in others}
    free = sorted(set(range(instance.num_logical_cores())) - held)
    remedies = [f"stop process {row['pid']}: its cores are free at once" for row in others if row["pid"]][:1]
    elsewhere = [run for run in _placements(instance, free, num_cores) if not set(run) <= set(allowed.core_ids)]
    if elsewhere:
        remedies.append(f"set NEURON_RT_VISIBLE_CORES={_ranges(elsewhere[0])}, which no other process holds")
    larger = [size for size in TARGETS[instance.family].instances if size.num_cores > instance.num_cores]
    if larger:
        remedies.append(f"simulate {larger[0].name}, which has {larger[0].num_logical_cores()} cores "
                        f"(OPTIMUM_NEURON_INSTANCE={larger[0].name})")
    cores = "core" if num_cores == 1 else "neighbouring cores"
    message = refusal(
        asked=f"claim {num_cores} {cores} of {instance.name} for '{purpose}'",
        found=f"other processes hold {len(held & set(allowed.core_ids))} of the {len(allowed.core_ids)} cores "
              f"{allowed.origin}",
        why="a NeuronCore belongs to one process at a time", do=", or ".join(remedies or ["wait for the holders"]))
    return CoreBusyError(f"{message}\n{core_files.table(others)}", details={"instance": instance.name,
                                                                           "num_cores": num_cores, "holders": others})


def _ranges(core_ids: Sequence[int]) -> str:
    """Core ids as NEURON_RT_VISIBLE_CORES writes them."""
    parts: list[list[int]] = []
    for core in sorted(core_ids):
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
