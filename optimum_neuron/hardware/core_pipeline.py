"""NeuronCore Pipeline of Inf1: cores in a row share a model, and keep its weights in their own memory.

>>> pipeline_cores_of(110_000_000)
24
"""

from __future__ import annotations

from ..errors import ConfigError
from .specs import InstanceSpec
from .targets import TARGETS

WEIGHTS_OF_PIPELINE_CORE = 5_000_000
"""Weights for each core: the documented number of cores is 4 for every 2e7 weights, rounded
(`documents.NEURONCORE_PIPELINE`). The size of a core's memory is not published."""
_CORES_OF_CHIP = 4


def pipeline_cores_of(num_weights: int) -> int:
    """Return the documented number of cores for a model: those of whole chips, at least one."""
    chips = round(num_weights / (_CORES_OF_CHIP * WEIGHTS_OF_PIPELINE_CORE))
    return _CORES_OF_CHIP * max(chips, 1)


def require_pipeline_cores(instance: InstanceSpec, num_cores: int, *, option: str) -> None:
    """Check that a model can be divided over so many cores of an instance.

    Args:
        instance: the simulated instance.
        num_cores: cores of the pipeline.
        option: name of the option that asks for them.
    """
    family = TARGETS[instance.family]
    if num_cores > 1 and not family.shares_memory:
        message = f"{option}={num_cores}: only Inf1 divides a single-pass model over cores, not {instance.name}."
        hint = "Remove it: a core of this instance has memory for the model."
        raise ConfigError(message, hint=hint, option=option, num_cores=num_cores, instance=instance.name)
    if num_cores > instance.num_cores:
        larger = [one.name for one in family.instances if one.num_cores >= num_cores]
        hint = f"Pass at most {instance.num_cores}{f', or use {larger[0]}' if larger else ''}."
        message = f"{option}={num_cores}: {instance.name} has {instance.num_cores} cores."
        raise ConfigError(message, hint=hint, option=option, num_cores=num_cores, instance=instance.name)
