"""Models of diffusion pipelines: which calls a pipeline makes, and a graph for each.

`dry_run.py` notes the calls, `plan.py` makes graphs of them, `component.py` lets a stock pipeline call them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
