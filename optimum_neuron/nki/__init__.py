"""NKI, the kernel language of NeuronCores, on a simulated core with the limits of the real one.

Kernels run eagerly in this process, with the rules of tiles, the arithmetic, and the cycles of each instruction; tiles
have no addresses. `analyze` says what bounds a kernel. `docs/nki.md` lists what is implemented. The `sdk` distribution
has the vendor's names (`import nki`).

    >>> import torch
    >>> from optimum_neuron.nki import isa as nisa, jit, language as nl
    >>> @jit
    ... def double(x):
    ...     tile, out = nl.load(x), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    ...     nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
    ...     nl.store(out, tile)
    ...     return out
    >>> double(torch.ones(128, 4)).sum()
    tensor(1024.)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
