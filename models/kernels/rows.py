"""Kernels that treat each row by itself: RMS norm and softmax, of any multiple of 128 rows."""

from __future__ import annotations

from optimum_neuron.nki import NkiTensor, isa as nisa, jit, language as nl

ROWS = 128


@jit
def rms_norm(x: NkiTensor, weight: NkiTensor, epsilon: float = 1e-6) -> NkiTensor:
    """Return `x / sqrt(mean(x * x) + epsilon) * weight`: a pass of the scalar engine and one of the vector engine."""
    out, width = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), x.shape[1]
    gain = nl.load(weight.reshape((1, width)).broadcast(0, ROWS))
    for start in range(0, x.shape[0], ROWS):
        tile, squares = nl.load(x[start : start + ROWS]), nl.ndarray((ROWS, width), nl.float32)
        factor = nl.ndarray((ROWS, 1), nl.float32)
        nisa.activation_reduce(squares, nl.square, tile, nl.add, factor)
        nisa.tensor_scalar(factor, factor, nl.multiply, 1 / width, op1=nl.add, operand1=epsilon)
        nisa.activation(factor, nl.rsqrt, factor)
        nisa.scalar_tensor_tensor(tile, tile, nl.multiply, factor, nl.multiply, gain)
        nisa.dma_copy(out[start : start + ROWS], tile)
    return out


@jit
def softmax(x: NkiTensor) -> NkiTensor:
    """Return the softmax of each row; the sum comes with the exponentials."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for start in range(0, x.shape[0], ROWS):
        tile, powers = nl.load(x[start : start + ROWS]), nl.ndarray((ROWS, x.shape[1]), nl.float32)
        lowest, total = nl.ndarray((ROWS, 1), nl.float32), nl.ndarray((ROWS, 1), nl.float32)
        nisa.tensor_reduce(lowest, nl.maximum, tile, 1, negate=True)
        nisa.activation_reduce(powers, nl.exp, tile, nl.add, total, bias=lowest)
        nisa.reciprocal(total, total)
        nisa.tensor_scalar(tile, powers, nl.multiply, total)
        nisa.dma_copy(out[start : start + ROWS], tile)
    return out
