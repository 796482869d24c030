"""The part of the vendor's XLA package that scripts import by name."""

__all__ = ["data_parallel", "ops"]

from . import data_parallel, ops
