"""Placement of an estimate: instance, cores of a replica, replicas, price; each checked, each with its reason.

machine = choose_machine("inf2.48xlarge", price=0.76)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..base.core import Choice
from ..base.wording import counted, memory_table
from ..errors import ConfigError, DeviceMemoryError
from ..hardware import (
    InstanceSpec,
    Target,
    legal_core_counts,
    one_of,
    require_core_count,
    resolve_instance,
    resolve_target,
)
from .device_time import CoreRates, core_rates
from .fitted import Constants, CoreConstants, constants as shipped_constants, read_constants
from .work import Work

MAX_SIZE = 2**20
"""Rows, tokens and replicas beyond this are taken for a slip."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """An instance as an estimate sees it."""

    instance: Choice[InstanceSpec]
    target: Target
    price_usd_per_h: float | None
    """Price of the instance, or of all of several; None if it is neither published nor given."""
    price_source: str
    """Source of the price, or how to provide one."""
    constants: Constants
    """Fitted constants."""

    @property
    def rates(self) -> CoreRates:
        """Documented rates of a logical core."""
        return core_rates(self.target)

    @property
    def fitted(self) -> CoreConstants:
        """Constants of the core's generation."""
        return self.constants.cores[self.target.core.generation]

    @property
    def num_logical_cores(self) -> int:
        """Cores that programs can be put on."""
        return self.instance.value.num_logical_cores()

    @property
    def hbm_bytes_per_core(self) -> int:
        """Memory that one may use: of Inf1, whose cores share it, that of the chip."""
        return self.target.hbm_bytes_of_one_core()

    @property
    def sources(self) -> tuple[str, str]:
        """Origins of the price and of the fitted constants, as assumptions."""
        return self.price_source, f"constants version {self.constants.version}, {self.constants.fitted_on}"

    def network_bytes_per_s(self, num_cores: int) -> float | None:
        """Rate at which each of `num_cores` cores gets data from another instance; None if it is not published.

        The cores share the network of their instance.
        """
        gbps = self.instance.value.network_gbps
        return None if gbps is None else gbps * 1e9 / 8 / num_cores

    def usd_per_1m(self, per_s: float) -> float | None:
        """Dollars for a million results at a rate; None without a price."""
        return None if self.price_usd_per_h is None else self.price_usd_per_h / 3600 / per_s * 1e6

    def num_chips(self, num_cores: int) -> int:
        """Chips that a replica on `num_cores` cores takes."""
        return -(-num_cores // self.target.logical_cores_per_chip())

    def busy_cores(self, num_cores: int) -> int:
        """Cores of a chip that run at the same time, of `num_cores` that do on the instance."""
        return min(num_cores, self.target.logical_cores_per_chip())

    def copies_s(self, work: Work) -> float:
        """Seconds that the copies of a graph between host and device take."""
        return work.host_bytes / self.constants.copy_bytes_per_s


def choose_machine(
    instance: str | None, *, price: float | None = None, constants: str | Path | Constants | None = None
) -> Machine:
    """Resolve an instance, its price, and the constants.

    Args:
        instance: name of an instance or of several, such as "2xtrn1.32xlarge".
        price: US dollars for an hour of one instance; None for the published one.
        constants: a file of `optimum-cli neuron calibrate`, or its content; None for those of this version.
    """
    chosen = resolve_instance(instance)
    target = resolve_target(chosen.value.name).value
    if price is not None and not 0 < price < 1e5:
        message = f"price={price} is not a price in US dollars for an hour."
        raise ConfigError(message, hint="Pass a number such as 0.76.", option="price", value=price)
    listed = chosen.value.price_on_demand_usd_per_h
    num_instances = chosen.value.num_instances
    each = "" if num_instances == 1 else f" for {num_instances} instances"
    total = listed if price is None else num_instances * price
    if price is not None:
        source = f"${total:g} an hour{each}, as given"
    elif listed is not None:
        source = f"${total:g} an hour{each}: {chosen.value.source('price_on_demand_usd_per_h')}"
    else:
        source = f"no price of {chosen.value.name} is published: pass --price"
    values = as_constants(constants)
    return Machine(instance=chosen, target=target, price_usd_per_h=total, price_source=source, constants=values)


def as_constants(given: str | Path | Constants | None) -> Constants:
    """Return the constants of a file, constants as they are, or for None those of this version."""
    if given is None:
        return shipped_constants()
    return given if isinstance(given, Constants) else read_constants(given)


def require_one_instance(machine: Machine, what: str) -> None:
    """Check that an estimate of something without pipeline stages is of one instance."""
    instance = machine.instance.value
    if instance.num_instances > 1:
        message = f"{instance.name} has {instance.num_instances} instances, but {what} has no pipeline stages."
        hint = f"Pass {one_of(instance).name}. For stages, export the model with pipeline_parallel_size, which needs "
        hint += "no weights, and estimate the exported folder."
        raise ConfigError(message, hint=hint, option="instance", value=instance.name)


def choose_cores(machine: Machine, num_cores: int | None, fits: Callable[[int], bool]) -> Choice[int]:
    """Cores of one replica: the requested number, if legal, else the fewest legal ones on which it `fits`."""
    instance = machine.instance.value
    if num_cores is not None:
        require_tensor_parallel_size(instance, num_cores)
        return Choice(value=num_cores, reason=f"tensor_parallel_size={num_cores}")
    counts = legal_core_counts(instance).counts
    for count in counts:
        if fits(count):
            return Choice(value=count, reason=f"fewest legal cores of {instance.name} that hold a replica")
    return Choice(value=counts[-1], reason=f"all cores of {instance.name}: fewer do not hold a replica")


def choose_copies(machine: Machine, num_cores: int, num_copies: int | None, *, bytes_of_core: int = 0) -> Choice[int]:
    """Replicas on the instance, each on `num_cores` cores; a ConfigError if there are not as many cores.

    Where the cores of a chip share its memory, each of which takes `bytes_of_core`, that limits them too.
    """
    room, cores = machine.num_logical_cores // num_cores, f"{machine.num_logical_cores} cores"
    if machine.target.shares_memory and bytes_of_core:
        chip = machine.target.chip
        held = machine.instance.value.num_chips * (chip.hbm_bytes // bytes_of_core) // num_cores
        room, cores = (held, f"{cores} with the memory of their chips") if held < room else (room, cores)
    if num_copies is None:
        return Choice(value=room, reason=f"{cores} hold {room} of {num_cores}")
    if positive("data_parallel_size", num_copies) > room:
        message = f"data_parallel_size={num_copies} needs {num_copies} x {num_cores} cores, but {cores} hold {room}."
        hint = f"Pass data_parallel_size={room} or less."
        raise ConfigError(message, hint=hint, option="data_parallel_size", value=num_copies, most=room)
    return Choice(value=num_copies, reason=f"data_parallel_size={num_copies}")


def require_tensor_parallel_size(instance: InstanceSpec, size: int) -> None:
    """Check that cores of an instance can share a model."""
    positive("tensor_parallel_size", size)
    require_core_count(instance, size, request=f"tensor_parallel_size={size}")


def positive(name: str, value: int) -> int:
    """Return a size if it is a whole number from 1 to `MAX_SIZE`; a ConfigError if not."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_SIZE:
        message = f"{name}={value!r} is not a whole number from 1 to {MAX_SIZE}."
        raise ConfigError(message, hint="Pass one.", option=name, value=value)
    return value


def does_not_fit(
    what: str, memory: Mapping[str, int], machine: Machine, *, hint: str, **details: Any
) -> DeviceMemoryError:
    """Return the error for a core that is too small, with the memory by category."""
    total, available = sum(memory.values()), machine.hbm_bytes_per_core
    table = memory_table(memory, available)
    message = f"{what} needs {total / 2**30:.2f} of {available / 2**30:.0f} GiB of each core:\n{table}"
    return DeviceMemoryError(message, hint=hint, hbm_bytes=dict(memory), available=available, **details)


def require_fits(name: str, memory: Mapping[str, int], machine: Machine, *, num_cores: int = 1) -> None:
    """Check that each core of a model holds its part; a DeviceMemoryError has the memory by category."""
    if sum(memory.values()) <= machine.hbm_bytes_per_core:
        return
    hint = "Pass a smaller batch_size or sequence_length, or dtype='bf16', or take an instance with larger cores."
    raise does_not_fit(
        f"{name} on {counted(num_cores, 'core')} of {machine.instance.value.name}", memory, machine, hint=hint
    )
