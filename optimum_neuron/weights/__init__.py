"""Checkpoint tensors: mapped from safetensors, bound to a program's weights, packed so that no copy is needed.

It does not depend on models; which tensors make a weight is given as a map.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
