"""Kernels of this package that models use: flash attention with its gradient, as kernels and as an operator of PyTorch.

    out = attention(query, key, value, scale)   # [batch, heads, tokens, width], causal, with autograd

`models/kernels` has more of them, with a page on how they were made fast.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
