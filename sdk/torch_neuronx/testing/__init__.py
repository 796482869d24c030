"""Comparisons under the vendor's names."""

from . import validation
from .validation import assert_close, neuron_allclose

__all__ = ["assert_close", "neuron_allclose", "validation"]
