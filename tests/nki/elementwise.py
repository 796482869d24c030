"""Two small kernels: one returns a new tensor, one writes into its first."""

from __future__ import annotations

from optimum_neuron.nki import isa as nisa, jit, language as nl


@jit
def scale_kernel(x, factor):
    tile, out = nl.load(x), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.tensor_scalar(tile, tile, nl.multiply, factor)
    nl.store(out, tile)
    return out


@jit
def add_to_kernel(x, y):
    tile = nl.load(x)
    nisa.tensor_tensor(tile, tile, nl.load(y), nl.add)
    nl.store(x, tile)
    return x
