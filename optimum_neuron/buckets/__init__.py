"""Which lengths to compile for: the ones that pad the sequences of a data set least.

from optimum_neuron import suggest_buckets
print(suggest_buckets([12, 15, 60, 61, 500], max_buckets=3).buckets)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .lengths import read_lengths
    from .suggest import BucketAdvice, BucketOption, suggest_buckets

__all__ = ["BucketAdvice", "BucketOption", "read_lengths", "suggest_buckets"]

_MODULES = {
    "BucketAdvice": "suggest",
    "BucketOption": "suggest",
    "read_lengths": "lengths",
    "suggest_buckets": "suggest",
}

__getattr__ = lazy_names(__name__, _MODULES)
