"""The hardware catalogue: NeuronCores, chips, instances and targets, every number with its source.

It knows what is published and nothing else: no timing model, no model sizes, no torch.

    >>> from optimum_neuron.hardware import resolve_instance
    >>> choice = resolve_instance("trn1", environ={})
    >>> choice.value.name, choice.reason
    ('trn1.2xlarge', "instance_type='trn1': smallest size of trn1")
"""

from __future__ import annotations

from .chips import CHIPS
from .cores import CORES
from .dtypes import KNOWN_DTYPES, canonical_dtype
from .instances import INSTANCES
from .resolve import DEFAULT_TARGET, require_default_lnc, resolve_instance, resolve_target
from .specs import ChipSpec, CoreSpec, EngineSpec, GpSimdSpec, InstanceSpec
from .targets import TARGETS, Target, require_compilable, require_dtype
from .timings import CoreTiming
from .topology import CoreCounts, legal_core_counts, require_core_count

__all__ = [
    "CHIPS",
    "CORES",
    "DEFAULT_TARGET",
    "INSTANCES",
    "KNOWN_DTYPES",
    "TARGETS",
    "ChipSpec",
    "CoreCounts",
    "CoreSpec",
    "CoreTiming",
    "EngineSpec",
    "GpSimdSpec",
    "InstanceSpec",
    "Target",
    "canonical_dtype",
    "legal_core_counts",
    "require_compilable",
    "require_core_count",
    "require_default_lnc",
    "require_dtype",
    "resolve_instance",
    "resolve_target",
]
