"""Compare a compiled model with the reference model in float32: the engine runs scenarios, as users do.

A scenario is a name, a call of the engine, and a call of the reference; each kind of model makes its own
(`kinds/*/scenarios.py`).

recorded.py     loads the reference and compares, once for the same files, program, code, and CPU
scenarios.py    runs them and compares all results
statistics.py   errors, signal-to-noise ratio, tolerances, records
quality.py      what quantization costs, on a text
divergence.py   the first module that differs
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
