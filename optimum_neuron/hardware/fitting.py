"""The instance for a number of cores, for scripts that name a degree and no instance."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import env
from ..base.core import Choice
from ..errors import ConfigError
from .resolve import resolve_instance
from .targets import TARGETS
from .topology import fitting_instances, legal_core_counts

FAMILIES = ("inf2", "trn1", "trn2")
"""Families that libraries for language models run on, the smallest first."""


def instance_for_cores(num_cores: int, *, families: Sequence[str] = FAMILIES) -> Choice[str]:
    """Choose the instance for so many cores: the one that the environment names, or the smallest that has them.

    Args:
        num_cores: cores that work together.
        families: families to choose from, in this order.
    """
    if not isinstance(num_cores, int) or isinstance(num_cores, bool) or num_cores < 1:
        raise ConfigError(
            f"tensor_parallel_size={num_cores!r} is not a number of cores.",
            hint="Pass a whole number, at least 1.",
            option="tensor_parallel_size",
            value=num_cores,
        )
    named = resolve_instance()
    is_of_family = named.value.family in families
    if env.instance_type() is not None or (is_of_family and num_cores in legal_core_counts(named.value).counts):
        return Choice(value=named.value.name, reason=named.reason)
    for family in families:
        for spec, _ in fitting_instances(TARGETS[family].instances, lambda count: count == num_cores):
            reason = f"the smallest instance on which {num_cores} cores can work together"
            return Choice(value=spec.name, reason=reason)
    instances = [spec for family in families for spec in TARGETS[family].instances]
    counts = sorted({count for spec in instances for count in legal_core_counts(spec).counts})
    raise ConfigError(
        f"tensor_parallel_size={num_cores} is not possible on any instance of {', '.join(families)}.",
        hint=f"Use one of {', '.join(map(str, counts))}.",
        option="tensor_parallel_size",
        value=num_cores,
        legal=counts,
    )
