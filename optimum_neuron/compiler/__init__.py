"""From a PyTorch module to a NEFF: capture, check, transform, lower, pack and cache."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
