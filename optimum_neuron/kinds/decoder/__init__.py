"""Models that generate text: graphs of prompts and of tokens that share a cache, also one in blocks."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
