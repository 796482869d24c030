"""`DataParallel` where older scripts import it from."""

from optimum_neuron.tracing import DataParallel

__all__ = ["DataParallel"]
