"""`neuronx_distributed`: layers, optimizers, and checkpoints of distributed training under the vendor's names.

The import names are in the distribution sdk; what is real is here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
