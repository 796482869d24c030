"""The generic path: any transformers causal LM, captured through its own code with a static cache."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
