"""Chooses the lengths to compile: the ones that pad the sequences of a data set least.

from optimum_neuron import suggest_buckets
print(suggest_buckets([12, 15, 60, 61, 500], max_buckets=3).buckets)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
