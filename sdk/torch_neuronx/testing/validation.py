"""More comparisons under the vendor's names."""

from optimum_neuron.tracing.testing import custom_allclose, neuron_allclose

__all__ = ["custom_allclose", "neuron_allclose"]
