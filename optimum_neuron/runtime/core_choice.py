"""Chooses the simulated cores of a model, their order, and the reason: decisions only, no files and no locks.

>>> from optimum_neuron.hardware import INSTANCES
>>> from optimum_neuron.runtime.core_choice import placements, ranked
>>> ranked(placements(INSTANCES["inf2.24xlarge"], range(12), 4), loads={0: 1}, last=-1)[0]
(2, 3, 4, 5)
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence

from ..base import env
from ..base.core import Choice, Rejected
from ..errors import ConfigError
from ..hardware import InstanceSpec, legal_core_counts, require_default_lnc

Cores = tuple[int, ...]
"""Ids of logical cores of one instance, ascending."""

_REAL_RUNTIME = (
    "only the cores that a model needs are claimed, where the real runtime claims all of them unless "
    "NEURON_RT_NUM_CORES or NEURON_RT_VISIBLE_CORES is set"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Allowed:
    """The cores that the environment leaves to a process."""

    core_ids: Cores
    origin: str
    """Source of the limit, to be read after "the cores"."""
    num_reserved: int | None = None
    """Number of cores that the process claims at first and keeps; None where it takes them as needed."""
    note: str = ""
    """Additional notes for the user."""


def allowed_cores(instance: InstanceSpec, environ: Mapping[str, str]) -> Allowed:
    """Read NEURON_RT_VISIBLE_CORES, which has precedence, and NEURON_RT_NUM_CORES.

    Source of their meaning: Neuron docs, Neuron Runtime configuration.

    Raises:
        ConfigError: a variable names cores that the instance does not have, or logical cores of another size.
    """
    require_default_lnc(instance.chip, environ=environ)
    total = instance.num_logical_cores()
    every = tuple(range(total))
    visible, count = env.visible_cores(environ), env.num_cores(environ)
    if visible is not None:
        variable = f"NEURON_RT_VISIBLE_CORES={ranges(visible)}"
        unknown = [core for core in visible if core >= total]
        if unknown:
            message = f"{variable} names {ranges(unknown)}, but {instance.name} has cores {ranges(every)}."
            hint = "Name some of these, or simulate a larger instance."
            raise ConfigError(message, hint=hint, unknown=unknown, num_cores=total)
        ignored = "" if count is None else f", which has precedence over NEURON_RT_NUM_CORES={count}"
        return Allowed(core_ids=tuple(sorted(visible)), origin=f"allowed by {variable}{ignored}")
    name, groups = "NEURON_RT_NUM_CORES", env.group_sizes(environ)
    if count is None and groups is not None:
        name, count = "NEURONCORE_GROUP_SIZES", sum(groups)
    if count is None:
        return Allowed(core_ids=every, origin=f"of {instance.name}", note=_REAL_RUNTIME)
    if count > total:
        message = f"{name} asks for {count} cores, but {instance.name} has {total} cores."
        hint = f"Set it to {total} or less, or simulate a larger instance."
        raise ConfigError(message, hint=hint, count=count, num_cores=total)
    return Allowed(
        core_ids=every,
        origin=f"of {instance.name}, of which {name} takes {count or total}",
        num_reserved=count or total,
    )


def starting_at(instance: InstanceSpec, allowed: Allowed, start: int, num_cores: int) -> Allowed:
    """The cores that a job takes whose first core was named, counted from 0 as the process sees them."""
    cores = allowed.core_ids[max(start, 0) : max(start, 0) + num_cores]
    if start < 0 or len(cores) < num_cores:
        named, total = ranges(range(start, start + num_cores)), len(allowed.core_ids)
        message = f"Cores {named} do not exist: this process may use {total} cores, {allowed.origin}, counted from 0."
        raise ConfigError(message, hint=f"Use 0 to {total - num_cores}.", start=start, num_cores=total)
    return Allowed(
        core_ids=cores,
        origin=f"requested as {ranges(range(start, start + num_cores))}, counted from 0 among those {allowed.origin}",
    )


def start_of_group(groups: Sequence[int], number: int, num_cores: int) -> int:
    """Return the first core of the group whose turn it is; a model that is larger spans groups, with a warning."""
    index, total = number % len(groups), sum(groups)
    start = sum(groups[:index])
    if num_cores > groups[index]:
        warnings.warn(
            f"a model on {num_cores} cores does not fit group {index} of NEURONCORE_GROUP_SIZES, which has "
            f"{groups[index]}: it spans groups, and shares their cores with other models",
            stacklevel=2,
        )
    return max(0, min(start, total - num_cores))


def num_usable(instance: InstanceSpec, environ: Mapping[str, str]) -> int:
    """Number of cores that the environment leaves to this process."""
    allowed = allowed_cores(instance, environ)
    return len(allowed.core_ids) if allowed.num_reserved is None else allowed.num_reserved


def placements(instance: InstanceSpec, core_ids: Iterable[int], num_cores: int) -> list[Cores]:
    """Runs of neighboring cores that a job may take; a count that is no legal job may start anywhere.

    On several instances, a job has the same run of each.
    """
    legal, num_instances = legal_core_counts(instance), instance.num_instances
    width, rest = divmod(num_cores, num_instances)
    if rest:
        return []
    step = 1
    if num_cores in legal.counts and width > 1:
        # Without alignment a job takes whole chips, so every legal count is a multiple of a chip's cores.
        step = width if legal.aligned else math.gcd(*(count // num_instances for count in legal.counts[1:]))
    present, total = set(core_ids), instance.num_logical_cores()
    firsts = range(0, total, total // num_instances)
    runs = (
        tuple(first + start + core for first in firsts for core in range(width))
        for start in range(0, total // num_instances - width + 1, step)
    )
    return [run for run in runs if present.issuperset(run)]


def ranked(runs: Iterable[Cores], loads: Mapping[int, int], last: int) -> list[Cores]:
    """Least loaded first; among equals, those after the last core used."""
    return sorted(runs, key=lambda run: (load_of(run, loads), run[0] <= last, run[0]))


def explained(
    cores: Cores, order: Sequence[Cores], loads: Mapping[int, int], allowed: Allowed, holders: Mapping[int, str]
) -> Choice[Cores]:
    """The choice of `cores` out of `order`, given that cores before it are in `holders`."""
    load, place = load_of(cores, loads), order.index(cores)
    # A holder may have let go since it was met.
    rejected = [
        Rejected(
            candidate=ranges(run),
            reason=next(
                (holders[core] for core in run if core in holders), "was held by another process when it was tried"
            ),
        )
        for run in order[:place]
    ]
    rejected += [
        Rejected(candidate=ranges(run), reason=f"models of this process on it: {load_of(run, loads)}")
        for run in order[place:]
        if load_of(run, loads) > load
    ]
    reason = (
        f"least loaded (models of this process on it: {load}) and next in turn of the "
        f"{len(allowed.core_ids)} cores {allowed.origin}"
    )
    return Choice(value=cores, reason="; ".join(filter(None, (reason, allowed.note))), rejected=tuple(rejected))


def no_place(instance: InstanceSpec, allowed: Allowed, num_cores: int) -> ConfigError:
    """Return the error for a job that does not fit the allowed cores, even if all are free."""
    message = f"num_cores={num_cores} does not fit the cores {ranges(allowed.core_ids)} {allowed.origin}."
    rule, places = (
        legal_core_counts(instance).rule,
        placements(instance, range(instance.num_logical_cores()), num_cores),
    )
    example = f"Allow cores such as {ranges(places[0])}" if places else "Allow more cores"
    hint = f"{example}: a job takes neighboring cores, {rule}."
    details = {"num_cores": num_cores, "allowed": list(allowed.core_ids), "num_reserved": allowed.num_reserved}
    return ConfigError(message, hint=hint, **details)


def load_of(run: Cores, loads: Mapping[int, int]) -> int:
    """Number of models on cores, counted once per core."""
    return sum(loads.get(core, 0) for core in run)


def ranges(core_ids: Iterable[int]) -> str:
    """Core ids as NEURON_RT_VISIBLE_CORES writes them.

    >>> ranges((0, 1, 2, 5))
    '0-2,5'
    """
    parts: list[list[int]] = []
    for core in sorted(core_ids):
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
