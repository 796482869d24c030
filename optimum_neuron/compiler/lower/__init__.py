"""Host code: the code that runs a subprogram on this machine's CPU.

`choose.py` decides the level of each subprogram and says why. `aten.py` runs it operator by operator; `functional.py`,
`generate.py` and `unit.py` turn it into C++ and compile it, in this process or in the background (`background.py`,
`worker.py`); the result is kept by content, CPU and torch version; `library.py` loads it. Host code never
travels with an artifact.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
