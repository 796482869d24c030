"""The operator check: one rule for each operator family, and a report of every call that a target refuses.

`report.check_graph` is the entry point. A rule is a small module; see `base.py` for how to write one.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
