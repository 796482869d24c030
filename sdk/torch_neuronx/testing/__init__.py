"""Comparisons under the vendor's names."""

from optimum_neuron.tracing.testing import assert_close, neuron_allclose

__all__ = ["assert_close", "neuron_allclose"]
