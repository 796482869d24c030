"""A kernel of the older API: masks, index tiles, and arithmetic of tiles."""

from __future__ import annotations

from optimum_neuron.nki.legacy import jit, language as onl


@jit
def kernel(x):
    out = onl.ndarray(x.shape, dtype=x.dtype, buffer=onl.shared_hbm)
    i_p, i_f = onl.arange(128)[:, None], onl.arange(x.shape[1])[None, :]
    for block in onl.affine_range(-(-x.shape[0] // 128)):
        rows = block * 128 + i_p
        tile = onl.load(x[rows, i_f], mask=rows < x.shape[0])
        onl.store(out[rows, i_f], value=tile * tile + 1.0, mask=rows < x.shape[0])
    return out
