"""What some architectures do in `forward` that no static graph can, and what is done instead while they are traced.

A patch may change the arguments of the model and, for the duration of a call, its modules; the model is the same
afterwards. Each comes with its reason, which the export reports.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
