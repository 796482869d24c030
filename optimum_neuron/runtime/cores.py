"""Claims on simulated NeuronCores: a core belongs to one process at a time, as on the real machine.

A process claims the cores that a model needs and no others. Several models of one process may share a core; whether
they fit is the ledger's business (`hbm.py`). It does not depend on programs and weights. The parts: `core_choice.py`
decides, `core_process.py` keeps the claims of this process, `core_files.py` shares them with other processes, and
`core_files.py` locates them. Work that only looks at results needs no claim: see `private_core.py`.

    from optimum_neuron.hardware import resolve_instance
    from optimum_neuron.runtime.cores import claim_cores

    with claim_cores(resolve_instance("inf2.xlarge").value, model="bert") as claim:
        print(claim.core_ids, claim.choice.reason)
"""

from __future__ import annotations

import dataclasses
import os
import weakref
from collections.abc import Mapping
from pathlib import Path

from ..base import env
from ..base.core import Choice
from ..errors import ConfigError, CoreBusyError
from ..hardware import TARGETS, InstanceSpec, require_core_count
from . import core_files
from .core_choice import (
    Allowed,
    Cores,
    allowed_cores,
    explained,
    no_place,
    placements,
    ranges,
    ranked,
    start_of_group,
    starting_at,
)
from .core_files import claims_folder
from .core_process import PROCESS
from .hbm import HbmLedger, ledger
from .publisher import PUBLISHER


class CoreClaim:
    """Simulated cores held for one model; made by `claim_cores`.

    They are freed by `release`, at the end of a `with` block, with the last reference, at exit, or by the kernel when
    the process is killed. A forked child has no part in them: there, `held` is False and `release` does nothing.
    """

    def __init__(self, *, instance: InstanceSpec, model: str, choice: Choice[Cores], token: int) -> None:
        self.instance, self.model = instance, model
        self.choice = choice
        """The cores and why these."""
        self._token = token
        self._finalizer = weakref.finalize(self, PROCESS.release, token)
        # `core_process.py` frees everything at exit.
        self._finalizer.atexit = False

    @property
    def core_ids(self) -> Cores:
        """Ids of the logical cores on the instance, ascending."""
        return self.choice.value

    @property
    def ledgers(self) -> tuple[HbmLedger, ...]:
        """HBM ledger of each core."""
        return tuple(ledger(self.instance, core) for core in self.core_ids)

    @property
    def hbm(self) -> HbmLedger:
        """HBM ledger of the first core."""
        return self.ledgers[0]

    @property
    def held(self) -> bool:
        """Whether this process still has the cores."""
        return self._token in PROCESS.claims

    def release(self) -> None:
        """Give the cores back; calling it again does nothing."""
        self._finalizer()

    def __enter__(self) -> CoreClaim:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def __repr__(self) -> str:
        state = "held" if self.held else "released"
        return f"CoreClaim({self.model!r}, cores {ranges(self.core_ids)} of {self.instance.name}, {state})"


def claim_cores(
    instance: InstanceSpec,
    *,
    model: str,
    num_cores: int = 1,
    start: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> CoreClaim:
    """Claim cores of the simulated instance for one model: the least loaded ones, in turn if several are equal.

    Several cores are neighbors and start where the instance can place such a job.

    Args:
        instance: Simulated instance.
        model: its name; other processes see it as the holder.
        num_cores: logical cores that the model runs on together.
        start: the first of them, counted from 0 among the cores that the process may use; None chooses.
        environ: environment variables; NEURON_RT_VISIBLE_CORES and NEURON_RT_NUM_CORES limit the choice.

    Raises:
        CoreBusyError: other processes hold the cores; the message has the table of holders.
        ConfigError: the instance or the environment has no place for so many cores, or the folder of the claims
            cannot be used.

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
    allowed = allowed_cores(instance, environ)
    folder = claims_folder(instance, environ)
    with PROCESS.alone(folder):
        if allowed.num_reserved is not None:
            allowed = _reserve(instance, folder, allowed, allowed.num_reserved, num_cores)
        loads = PROCESS.loads(folder)
        groups = env.group_sizes(environ) if start is None else None
        if groups is not None:
            start = start_of_group(groups, PROCESS.num_in_groups[folder], num_cores)
            PROCESS.num_in_groups[folder] += 1
        if start is not None:
            allowed = starting_at(instance, allowed, start, num_cores)
        order = ranked(placements(instance, allowed.core_ids, num_cores), loads, PROCESS.last.get(folder, -1))
        if not order:
            raise no_place(instance, allowed, num_cores)
        cores = PROCESS.take(folder, order)
        if cores is None:
            raise _busy(instance, folder, allowed, num_cores, model)
        holders = {} if cores == order[0] else _holders(instance, folder)
        choice = explained(cores, order, loads, allowed, holders)
        token = PROCESS.add(folder, cores, model)
        PROCESS.last[folder] = cores[-1]
        PUBLISHER.start(folder, instance)
        return CoreClaim(instance=instance, model=model, choice=choice, token=token)


def held_cores(instance: InstanceSpec, *, environ: Mapping[str, str] = os.environ) -> list[core_files.Row]:
    """Who holds which core of the simulated instance, this process included.

    Returns:
        One row per core and model: core_id, pid, model (None: kept for models to come), since (ISO 8601, UTC) and
        command. Unknown values are None.

    Raises:
        ConfigError: the folder of the claims cannot be used.
    """
    folder = claims_folder(instance, environ)
    if not folder.exists():
        return []
    with PROCESS.alone(folder):
        return core_files.read_rows(folder, range(instance.num_logical_cores()), PROCESS.own(folder))


def _reserve(instance: InstanceSpec, folder: Path, allowed: Allowed, count: int, num_cores: int) -> Allowed:
    """Cores left by NEURON_RT_NUM_CORES: the process takes them at its first claim and keeps them until it ends."""
    reserved = PROCESS.reserved.get(folder)
    if reserved is None:
        runs = [run for run in placements(instance, allowed.core_ids, count) if placements(instance, run, num_cores)]
        if not runs:
            raise no_place(instance, allowed, num_cores)
        reserved = PROCESS.take(folder, ranked(runs, PROCESS.loads(folder), -1))
        if reserved is None:
            raise _busy(instance, folder, allowed, count, f"NEURON_RT_NUM_CORES={count}")
        PROCESS.add(folder, reserved, None)
        PROCESS.reserved[folder] = reserved
    if len(reserved) != count:
        message = f"NEURON_RT_NUM_CORES is now {count}, but this process already reserved cores {ranges(reserved)}."
        hint = "Set it before the first model is loaded."
        raise ConfigError(message, hint=hint, num_cores=count, reserved=list(reserved))
    return dataclasses.replace(allowed, core_ids=reserved, origin="that NEURON_RT_NUM_CORES keeps for this process")


def _others(instance: InstanceSpec, folder: Path) -> list[core_files.Row]:
    mine = PROCESS.own(folder)
    foreign = [core for core in range(instance.num_logical_cores()) if core not in mine]
    return core_files.read_rows(folder, foreign, ())


def _holders(instance: InstanceSpec, folder: Path) -> dict[int, str]:
    return {
        row["core_id"]: f"core {row['core_id']} is held by process {row['pid'] or 'unknown'} "
        f"({row['model'] or 'no model yet'})"
        for row in _others(instance, folder)
    }


def _busy(instance: InstanceSpec, folder: Path, allowed: Allowed, num_cores: int, purpose: str) -> CoreBusyError:
    others = _others(instance, folder)
    held = {row["core_id"] for row in others}
    relevant = [row for row in others if row["core_id"] in allowed.core_ids]
    remedies, variables = ["End a process of the table, which frees its cores at once"], []
    free = [core for core in range(instance.num_logical_cores()) if core not in held]
    elsewhere = [run for run in placements(instance, free, num_cores) if not set(run) <= set(allowed.core_ids)]
    if elsewhere:
        variables.append(f"NEURON_RT_VISIBLE_CORES={ranges(elsewhere[0])}")
        remedies.append(f"set {variables[-1]}, which no other process holds")
    larger = [size for size in TARGETS[instance.family].instances if size.num_cores > instance.num_cores]
    if larger:
        variables.append(f"OPTIMUM_NEURON_INSTANCE={larger[0].name}")
        remedies.append(f"simulate {larger[0].name} with its {larger[0].num_logical_cores()} cores ({variables[-1]})")
    num_held, num_allowed = len({row["core_id"] for row in relevant}), len(allowed.core_ids)
    held_by = (
        f"other processes hold {num_held} of the {num_allowed} cores"
        if num_allowed > 1
        else "another process holds the core"
    )
    cores = "core" if num_cores == 1 else "neighboring cores"
    message = (
        f"'{purpose}' needs {num_cores} {cores} of {instance.name}, but "
        f"{held_by} {allowed.origin}.\n{core_files.table(relevant)}"
    )
    hint = f"{', or '.join(remedies)}."
    return CoreBusyError(
        message, hint=hint, instance=instance.name, num_cores=num_cores, holders=relevant, variables=variables
    )
