"""Bodies of requests, as pydantic models: names, types, and ranges; an unknown field is an error that names it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
