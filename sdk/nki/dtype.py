"""The dtypes of kernels, where some import them from."""

from optimum_neuron.nki import FORMATS

globals().update({("bool_" if name == "bool" else name): row.name for name, row in FORMATS.items()})
__all__ = sorted("bool_" if name == "bool" else name for name in FORMATS)
