"""Checks whether a model can be compiled, and its cost, without weights and without compiling.

from optimum_neuron import check_model
report = check_model("path/or/org/name", instance_type="trn2", sequence_length=512)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
