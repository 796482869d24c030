"""Number of cores that one multi-core job may use on an instance.

A job whose cores talk to each other (tensor parallelism, collectives) cannot take any number of cores: the links have a
shape. Single-core jobs that run side by side are not concerned. Sizes beyond one instance are not modelled.

    >>> from optimum_neuron.hardware import INSTANCES, legal_core_counts
    >>> legal_core_counts(INSTANCES["trn1.32xlarge"]).counts
    (1, 2, 8, 16, 32)
"""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..errors import ConfigError
from . import documents as doc
from .instances import INSTANCES
from .specs import InstanceSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoreCounts:
    """The legal core counts of one instance and where they come from."""

    counts: tuple[int, ...]
    """Legal counts of logical cores, ascending."""
    aligned: bool
    """A job of N cores has to start at a core id that is a multiple of N."""
    rule: str
    source: str
    published: bool
    """False where no document states a rule and it is inferred from published configurations."""


_RING_OF_V1 = CoreCounts(
    counts=tuple(range(1, 65)),
    aligned=False,
    published=True,
    rule="any number of consecutive cores",
    source=doc.RUNTIME_CONFIG,
)
_RING_OF_V2 = CoreCounts(
    counts=(1, *range(2, 25, 2)),
    aligned=False,
    published=True,
    rule="1 or a multiple of 2: whole neighboring chips of the ring",
    source=f"{doc.RUNTIME_TOPOLOGY}; {doc.SCHEDULER}",
)
_TORUS_OF_V2 = CoreCounts(
    counts=(1, 2, 8, 16, 32),
    aligned=True,
    published=True,
    rule="1, 2, 8, 16 or all 32: one core, or 1, 4, 8 or 16 chips of the torus",
    source=f"{doc.RUNTIME_TOPOLOGY}; {doc.SCHEDULER}; alignment: {doc.TORCH_VARIABLES}",
)
_POWERS_OF_TWO = CoreCounts(
    counts=tuple(2**n for n in range(12)),
    aligned=True,
    published=False,
    rule="a power of two, or all cores",
    source=f"inferred from the degrees in {doc.NXDI_TUTORIALS}",
)
_RULES = {
    "inf1": _RING_OF_V1,
    "inf2": _RING_OF_V2,
    "trn1": _TORUS_OF_V2,
    "trn1n": _TORUS_OF_V2,
    "trn2": _POWERS_OF_TWO,
    "trn3": _POWERS_OF_TWO,
}
"""Rules by family, with the counts of the largest instance."""


def legal_core_counts(instance: InstanceSpec, *, lnc: int | None = None) -> CoreCounts:
    """Return the numbers of logical cores, of `lnc` physical ones each, that one multi-core job may use on an instance.

    On several instances, a job has the same number of cores on each.

    Raises:
        ConfigError: the chip has no such logical core.
    """
    num_instances = instance.num_instances
    rule, total = _RULES[instance.family], instance.num_logical_cores(lnc) // num_instances
    counts = tuple(num_instances * n for n in sorted({n for n in rule.counts if n <= total} | {total}))
    if num_instances == 1:
        return dataclasses.replace(rule, counts=counts)
    return dataclasses.replace(rule, counts=counts, rule=f"{rule.rule}; the same on each of {num_instances} instances")


def require_core_count(
    instance: InstanceSpec, num_cores: int, *, lnc: int | None = None, request: str | None = None
) -> None:
    """Check that the instance can place a job of that many logical cores.

    Args:
        instance: the simulated instance.
        num_cores: logical cores of the job.
        lnc: physical cores of a logical one; None for the default.
        request: the user's option, for the message; None for the number of cores.
    """
    legal = legal_core_counts(instance, lnc=lnc)
    if num_cores in legal.counts:
        return
    position = bisect.bisect(legal.counts, num_cores)
    near = " or ".join(map(str, legal.counts[max(position - 1, 0) : position + 1]))
    where = f"{instance.name} with {legal.counts[-1]} cores"
    message = f"{request or f'num_cores={num_cores}'} is not possible on {where}: a job takes {legal.rule}."
    hint = f"Use {near}."
    if instance.num_instances > 1:
        one = instance.name.partition("x")[2]
        hint = f"Simulate one {one}: several instances are for decoders with pipeline stages."
    raise ConfigError(message, hint=hint, num_cores=num_cores, legal=list(legal.counts), source=legal.source)


def fitting_instances(
    instances: Iterable[InstanceSpec], fits: Callable[[int], bool]
) -> Iterator[tuple[InstanceSpec, int]]:
    """Yield each instance and number of cores on which a model fits, the smallest instance first.

    Args:
        instances: the instances of a family.
        fits: whether so many cores hold the model together.
    """
    for spec in sorted(instances, key=lambda spec: spec.num_cores):
        for count in legal_core_counts(spec).counts:
            if fits(count):
                yield spec, count


MAX_INSTANCES = 64
"""A larger count is taken for a slip."""

_SUMS = (
    "num_chips",
    "num_servers",
    "vcpus",
    "host_memory_bytes",
    "device_memory_bytes",
    "price_on_demand_usd_per_h",
    "price_reserved_usd_per_h",
)
"""Facts of all instances together; bandwidths are those of one."""

_COUNTED = re.compile(r"(\d+)x(.+)")


def split_count(name: str) -> tuple[int, str]:
    """Return the number of instances that a name has, and the name of one of them.

    >>> split_count("2xtrn1.32xlarge"), split_count("inf2.xlarge")
    ((2, 'trn1.32xlarge'), (1, 'inf2.xlarge'))
    """
    counted = _COUNTED.fullmatch(name)
    return (int(counted[1]), counted[2]) if counted else (1, name)


def cluster_of(instance: InstanceSpec, num_instances: int) -> InstanceSpec:
    """Return so many instances of a type as one; one instance is itself."""
    if num_instances == 1:
        return instance
    name = f"{num_instances}x{instance.name}"
    if not 0 < num_instances <= MAX_INSTANCES:
        message = f"{name} names {num_instances} instances."
        hint = f"Use 1 to {MAX_INSTANCES}, for example 2x{instance.name}."
        raise ConfigError(message, hint=hint, name=name, num_instances=num_instances)
    if instance.network_gbps is None:
        usable = [other.name for other in INSTANCES.values() if other.network_gbps and other.family != "inf1"]
        raise ConfigError(
            f"{name} is not simulated: the network bandwidth of {instance.name} is {instance.source('network_gbps')}, "
            "and stages on several instances exchange tensors over it.",
            hint=f"Use one {instance.name}, or several of {', '.join(usable)}.",
            name=name,
            instances=usable,
        )
    sums: dict[str, Any] = {
        fact: None if (value := getattr(instance, fact)) is None else num_instances * value for fact in _SUMS
    }
    return dataclasses.replace(instance, name=name, num_instances=num_instances, **sums)


def one_of(instance: InstanceSpec) -> InstanceSpec:
    """Return one instance of several of a type."""
    return INSTANCES[split_count(instance.name)[1]]


def require_degrees(instance: InstanceSpec, *, tensor_parallel_size: int = 1, pipeline_parallel_size: int = 1) -> None:
    """Check that an instance, or several, can place a model: each stage on one instance, as many stages on each."""
    num_instances, one = instance.num_instances, one_of(instance)
    if tensor_parallel_size > 1 and instance.chip.core.generation == 1:
        raise ConfigError(
            f"tensor_parallel_size={tensor_parallel_size}: cores of {instance.name} cannot share a layer, because "
            "neuron-cc has no operator that joins their parts.",
            hint="Remove it, or pass instance_type=inf2.xlarge.",
            option="tensor_parallel_size",
            value=tensor_parallel_size,
            instance=instance.name,
        )
    if pipeline_parallel_size % num_instances:
        raise ConfigError(
            f"{instance.name} has {num_instances} instances, but pipeline_parallel_size={pipeline_parallel_size}: "
            "each instance runs the same number of stages.",
            hint=f"Pass a multiple of {num_instances} as pipeline_parallel_size, or instance_type={one.name}.",
            option="pipeline_parallel_size",
            value=pipeline_parallel_size,
            num_instances=num_instances,
        )
    num_cores = tensor_parallel_size * pipeline_parallel_size
    counts = legal_core_counts(one).counts
    divisors = [n for n in range(num_instances, MAX_INSTANCES + 1) if pipeline_parallel_size % n == 0]
    enough = next((n for n in divisors if num_cores // n in counts), None)
    if num_cores > num_instances * counts[-1] and enough is not None and one.network_gbps is not None:
        raise ConfigError(
            f"tensor_parallel_size={tensor_parallel_size} times pipeline_parallel_size={pipeline_parallel_size} is "
            f"{num_cores} cores, but {instance.name} has {num_instances * counts[-1]}.",
            hint=f"Pass instance_type={enough}x{one.name}, or smaller sizes.",
            option="pipeline_parallel_size",
            num_cores=num_cores,
            num_instances=enough,
        )
    count, each = num_cores // num_instances, "" if num_instances == 1 else " on each instance"
    degree = f"tensor_parallel_size={tensor_parallel_size}"
    product = f"{degree} times pipeline_parallel_size={pipeline_parallel_size} ({count} cores{each})"
    require_core_count(one, tensor_parallel_size, request=degree)
    require_core_count(one, count, request=product)


def stage_instances(instance: InstanceSpec, num_stages: int) -> list[int]:
    """Return the instance of each pipeline stage, counted from 0."""
    return [stage * instance.num_instances // num_stages for stage in range(num_stages)]


def is_first_of_instance(instance: InstanceSpec, stage: int, num_stages: int) -> bool:
    """Return whether a stage gets its inputs over the network: the stage before it is on another instance."""
    instances = stage_instances(instance, num_stages)
    return stage > 0 and instances[stage] != instances[stage - 1]
