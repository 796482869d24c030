"""What the hardware's compiler does not take of Python: kernels here are Python that runs, and there they are compiled.

`problems_of(kernel)` reads the source of a kernel and of the functions that it calls, and returns every place that the
compiler refuses, with its rule and what to write instead; `check` raises them as one error. Conditions that depend on
values are found while a kernel runs: `core.platform_rules` says that they are refused.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
