"""Diffusion pipelines as checkpoints: their index, their models without weights, and what is added to them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
