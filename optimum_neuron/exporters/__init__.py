"""From a checkpoint to an exported folder: find the model, compile, validate, save, inspect.

from optimum_neuron.exporters import main_export
report = main_export("path/or/org/name", "out", batch_size=1, sequence_length=512)
"""

from ..base.lazy_names import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
