"""Named passes over programs: outline, stretch, auto-cast, verify. Each is a function."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
