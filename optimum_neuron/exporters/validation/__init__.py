"""Compare a compiled model with the reference model in float32: the engine runs scenarios, as users do.

scenarios.py    a name, a call of the engine, a call of the reference     decoder.py, ... make them for each kind
statistics.py   errors, signal-to-noise ratio, tolerances                 divergence.py   the first module that differs
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
