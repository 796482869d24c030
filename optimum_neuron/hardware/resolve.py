"""From a name to a target or an instance.

Names are case-insensitive and may be a family ("inf2"), an instance size ("inf2.xlarge"), several instances of a size
("2xtrn1.32xlarge"), or a generation name of the runtime (gen2, gen3, gen4). Every answer says why it was given.

    >>> from optimum_neuron.hardware import resolve_target
    >>> choice = resolve_target("Inf2.8xlarge")
    >>> choice.value.name, choice.reason
    ('inf2', "instance_type='Inf2.8xlarge' belongs to inf2")
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from ..base import env
from ..base.core import Choice, Rejected
from ..base.startup import apply_environment
from ..errors import ConfigError, nearest
from .instances import INSTANCES
from .specs import ChipSpec, InstanceSpec, checked_lnc
from .targets import TARGETS, Target
from .topology import cluster_of, split_count

DEFAULT_TARGET = "inf2"
"""Target when nothing names one."""
_INF1_PACKAGE = "torch_neuron"
"""Package of scripts for Inf1: where it is imported and nothing names a target, that is the target."""

GENERATION_NAMES: Mapping[str, str] = {"gen2": "trn1", "gen3": "trn2", "gen4": "trn3"}
"""Other names of NEURON_PLATFORM_TARGET_OVERRIDE (Neuron docs, Neuron Runtime configuration)."""


def _lookup(name: str, request: str) -> tuple[Target, InstanceSpec | None, int]:
    """The target of a name, the instance if the name is one, and how many of it."""
    count, key = split_count(name.strip().lower())
    key = GENERATION_NAMES.get(key, key)
    if key in TARGETS:
        return TARGETS[key], None, count
    if key in INSTANCES:
        return TARGETS[INSTANCES[key].family], INSTANCES[key], count
    known = [*TARGETS, *INSTANCES]
    message = f"{request} is not a family or an instance{nearest(key, known) or '.'}"
    names = f"a family ({', '.join(TARGETS)}), an instance ({', '.join(INSTANCES)})"
    hint = f"Use {names}, or several of one (2xtrn1.32xlarge)."
    details = {"name": name, "families": list(TARGETS), "instances": list(INSTANCES)}
    raise ConfigError(message, hint=hint, request=request, **details)


def resolve_target(instance_type: str | None = None, environ: Mapping[str, str] = os.environ) -> Choice[Target]:
    """Choose the compile target.

    Args:
        instance_type: family or instance name; None asks --target in NEURON_CC_FLAGS, then
            NEURON_PLATFORM_TARGET_OVERRIDE, then OPTIMUM_NEURON_INSTANCE, then takes the default.
        environ: environment variables.

    Raises:
        ConfigError: the name is unknown; the message has the nearest name and the list.
    """
    if environ is os.environ:
        apply_environment()
    flag, override = env.compiler_target(environ), env.platform_target(environ)
    simulated = env.instance_type(environ)
    candidates = [
        (instance_type, f"instance_type='{instance_type}'"),
        (flag, f"NEURON_CC_FLAGS=--target {flag}"),
        (override, f"NEURON_PLATFORM_TARGET_OVERRIDE={override}"),
        (simulated, f"OPTIMUM_NEURON_INSTANCE={simulated}"),
    ]
    requests = [(name, request) for name, request in candidates if name is not None]
    if not requests and _INF1_PACKAGE in sys.modules:
        return Choice(value=TARGETS["inf1"], reason=f"default: {_INF1_PACKAGE} is imported, and nothing names a target")
    if not requests:
        reason = "default: no instance type was given and no environment variable names one"
        return Choice(value=TARGETS[DEFAULT_TARGET], reason=reason)
    name, request = requests[0]
    target, _, _ = _lookup(name, request)
    rejected = tuple(Rejected(candidate=later, reason=f"{request} has precedence") for _, later in requests[1:])
    same = name.strip().lower() == target.name
    reason = f"{request} is the target of that name" if same else f"{request} belongs to {target.name}"
    return Choice(value=target, reason=reason, rejected=rejected)


def resolve_instance(instance_type: str | None = None, environ: Mapping[str, str] = os.environ) -> Choice[InstanceSpec]:
    """Choose the instance to simulate; for a family, its smallest size.

    Args:
        instance_type: family or instance name, with a count for several, such as "2xtrn1.32xlarge"; None asks
            OPTIMUM_NEURON_INSTANCE, then does as `resolve_target`.
        environ: environment variables.

    Raises:
        ConfigError: the name is unknown; the message has the nearest name and the list.
    """
    if environ is os.environ:
        apply_environment()
    simulated = env.instance_type(environ)
    name, request = instance_type, f"instance_type='{instance_type}'"
    if name is None and simulated is not None:
        name, request = simulated, f"OPTIMUM_NEURON_INSTANCE={simulated}"
    if name is None:
        choice = resolve_target(None, environ)
        target, instance, count, request = choice.value, None, 1, choice.reason
    else:
        target, instance, count = _lookup(name, request)
    several = "" if count == 1 else f"; each of the {count} instances has the same number of pipeline stages"
    if instance is not None:
        return Choice(value=cluster_of(instance, count), reason=f"{request} names it{several}")
    if name is None and request.startswith("default: ") and target.name == "inf1":
        return _instance_of_script(target, request, environ)
    smallest = cluster_of(target.instances[0], count)
    larger = tuple(Rejected(candidate=i.name, reason="larger") for i in target.instances[1:])
    return Choice(value=smallest, reason=f"{request}: smallest size of {target.name}{several}", rejected=larger)


def _instance_of_script(target: Target, request: str, environ: Mapping[str, str]) -> Choice[InstanceSpec]:
    """Return the smallest size with the cores that the variables of a script name: scripts do not name the instance."""
    visible, groups = env.visible_cores(environ) or (), env.group_sizes(environ) or ()
    needed = max(env.num_cores(environ) or 1, sum(groups), *(core + 1 for core in visible), 1)
    instance = next((size for size in target.instances if size.num_cores >= needed), target.instances[-1])
    reason = f"{request}: smallest size of {target.name} with {needed} cores, which the environment names"
    return Choice(value=instance, reason=reason)


def require_default_lnc(
    chip: ChipSpec, *, asked: Mapping[str, int] | None = None, environ: Mapping[str, str] = os.environ
) -> None:
    """Check that logical cores have the chip's default size: other sizes are not simulated.

    Args:
        chip: the chip that is compiled for, or whose cores are claimed.
        asked: sizes that the caller asked for, by the name of its option.
        environ: environment variables; NEURON_LOGICAL_NC_CONFIG and NEURON_RT_VIRTUAL_CORE_SIZE ask too.
    """
    for name, lnc in {**env.logical_nc_config(environ), **(asked or {})}.items():
        if checked_lnc(chip, lnc, asked=f"{name}={lnc}") != chip.default_lnc:
            message = (
                f"{name}={lnc} is not supported: logical cores of {chip.name} are {chip.default_lnc} physical ones."
            )
            hint = f"Remove {name}, or set it to {chip.default_lnc}."
            raise ConfigError(message, hint=hint, option=name, lnc=lnc, default=chip.default_lnc)
