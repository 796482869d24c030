"""Several instances of one type, which share a model by its pipeline stages and exchange tensors over their network.

A cluster is an `InstanceSpec` whose name has the count before the type. Its cores are numbered through: those of the
second instance follow those of the first.

    >>> from optimum_neuron.hardware import resolve_instance
    >>> two = resolve_instance("2xtrn1.32xlarge").value
    >>> two.num_instances, two.num_logical_cores(), two.price_on_demand_usd_per_h
    (2, 64, 43.0)
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from ..errors import ConfigError
from .instances import INSTANCES
from .specs import InstanceSpec
from .topology import legal_core_counts, require_core_count

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
