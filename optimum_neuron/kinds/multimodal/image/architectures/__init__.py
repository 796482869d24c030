"""The architectures of images and text that are implemented, one file each.

A file has an `Architecture` named `ARCHITECTURE`, and the small functions that only it needs. The registry finds it by
its file, so that a new one is listed nowhere. transformers' code is the same for all of them below the modules that
the architecture names.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
