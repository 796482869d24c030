"""Comparisons under the vendor's names."""

from optimum_neuron.tracing import assert_close, custom_allclose, neuron_allclose

__all__ = ["assert_close", "custom_allclose", "neuron_allclose"]
