"""Models that read a source and write a target, such as T5 and BART.

`configuration.py` has the shapes, `entry.py` calls transformers' own modules with device-resident caches, `plan.py`
makes graphs of that.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
