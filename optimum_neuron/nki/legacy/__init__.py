"""The older API of kernels (`neuronxcc.nki`), on the same machine: functions return tiles, index tiles and masks.

`isa` and `language` are its modules; `jit` and `simulate_kernel` run kernels. The `sdk` distribution has the vendor's
names. `docs/nki.md` says what is not there.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
