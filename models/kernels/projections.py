"""RMS norm and the projections of attention after it, in one kernel: four steps from two passes to one.

All compute `(x / sqrt(mean(x * x) + epsilon) * gain) @ weight`, for multiples of 128 tokens and of 128 features, and
multiples of 512 columns of the joined weights of queries, keys and values.
"""

from __future__ import annotations

from optimum_neuron.nki import NkiTensor, isa as nisa, jit, language as nl

ROWS, COLUMNS = 128, 512


def _factor(tile: NkiTensor, epsilon: float) -> NkiTensor:
    """Return one over the root of the mean square of each row."""
    squares, factor = nl.ndarray(tile.shape, nl.float32), nl.ndarray((ROWS, 1), nl.float32)
    nisa.activation_reduce(squares, nl.square, tile, nl.add, factor)
    nisa.tensor_scalar(factor, factor, nl.multiply, 1 / tile.shape[1], op1=nl.add, operand1=epsilon)
    nisa.activation(factor, nl.rsqrt, factor)
    return factor


def _normed(tile: NkiTensor, gain: NkiTensor, epsilon: float) -> NkiTensor:
    factor, normed = _factor(tile, epsilon), nl.ndarray(tile.shape, tile.dtype)
    nisa.scalar_tensor_tensor(normed, tile, nl.multiply, factor, nl.multiply, gain)
    return normed


def _turned(tile: NkiTensor) -> list[NkiTensor]:
    """Return the transposes of the square parts of a tile."""
    parts = []
    for start in range(0, tile.shape[1], ROWS):
        total, part = nl.ndarray((ROWS, ROWS), tile.dtype, buffer=nl.psum), nl.ndarray((ROWS, ROWS), tile.dtype)
        nisa.nc_transpose(total, tile[:, start : start + ROWS])
        nisa.tensor_copy(part, total)
        parts.append(part)
    return parts


def _rows(weight: NkiTensor) -> list[NkiTensor]:
    return [nl.load(weight[start : start + ROWS]) for start in range(0, weight.shape[0], ROWS)]


def _project(out: NkiTensor, parts: list[NkiTensor], weights: list[NkiTensor], factor: NkiTensor | None = None) -> None:
    """Store the product of a tile's transposes with the weights, times a factor for each row."""
    result = nl.ndarray(out.shape, out.dtype)
    for start in range(0, out.shape[1], COLUMNS):
        columns, total = nl.ds(start, COLUMNS), nl.ndarray((ROWS, COLUMNS), nl.float32, buffer=nl.psum)
        for part, rows in zip(parts, weights, strict=True):
            nisa.nc_matmul(total, part, rows[:, columns])
        if factor is None:
            nisa.tensor_copy(result[:, columns], total)
        else:
            nisa.tensor_scalar(result[:, columns], total, nl.multiply, factor)
    nisa.dma_copy(out, result)


def _shapes(x: NkiTensor, gain: NkiTensor, weight: NkiTensor) -> tuple[NkiTensor, NkiTensor, list[slice]]:
    """Return the result, the gain in all partitions, and the rows of each tile."""
    out = nl.ndarray((x.shape[0], weight.shape[1]), x.dtype, buffer=nl.shared_hbm)
    wide = nl.load(gain.reshape((1, x.shape[1])).broadcast(0, ROWS))
    return out, wide, [slice(start, start + ROWS) for start in range(0, x.shape[0], ROWS)]


@jit
def two_passes(x: NkiTensor, gain: NkiTensor, weight: NkiTensor, epsilon: float = 1e-6) -> NkiTensor:
    """Step 1: normed tokens go through HBM, as between two kernels, and weights are loaded for each tile."""
    out, wide, tiles = _shapes(x, gain, weight)
    between = nl.ndarray(x.shape, x.dtype, buffer=nl.hbm)
    for rows in tiles:
        nisa.dma_copy(between[rows], _normed(nl.load(x[rows]), wide, epsilon))
    for rows in tiles:
        _project(out[rows], _turned(nl.load(between[rows])), _rows(weight))
    return out


@jit
def fused(x: NkiTensor, gain: NkiTensor, weight: NkiTensor, epsilon: float = 1e-6) -> NkiTensor:
    """Step 2: normed tokens stay in SBUF."""
    out, wide, tiles = _shapes(x, gain, weight)
    for rows in tiles:
        _project(out[rows], _turned(_normed(nl.load(x[rows]), wide, epsilon)), _rows(weight))
    return out


@jit
def weights_once(x: NkiTensor, gain: NkiTensor, weight: NkiTensor, epsilon: float = 1e-6) -> NkiTensor:
    """Step 3: weights are loaded once."""
    out, wide, tiles = _shapes(x, gain, weight)
    weights: list[NkiTensor] = []
    for rows in tiles:
        parts = _turned(_normed(nl.load(x[rows]), wide, epsilon))
        weights = weights or _rows(weight)
        _project(out[rows], parts, weights)
    return out


@jit
def scaled_late(x: NkiTensor, gain: NkiTensor, weight: NkiTensor, epsilon: float = 1e-6) -> NkiTensor:
    """Step 4: the gain goes into the weights, and the norm's factor onto the result, which is copied anyway."""
    out = nl.ndarray((x.shape[0], weight.shape[1]), x.dtype, buffer=nl.shared_hbm)
    weights: list[NkiTensor] = []
    for start in range(0, x.shape[0], ROWS):
        tile = nl.load(x[start : start + ROWS])
        parts = _turned(tile)
        weights = weights or _gained(weight, gain)
        _project(out[start : start + ROWS], parts, weights, _factor(tile, epsilon))
    return out


def _gained(weight: NkiTensor, gain: NkiTensor) -> list[NkiTensor]:
    """Return the rows of a weight, each times the gain of its feature."""
    weights, column = _rows(weight), gain.reshape((gain.shape[0], 1))
    for number, rows in enumerate(weights):
        nisa.tensor_scalar(rows, rows, nl.multiply, nl.load(column[number * ROWS : (number + 1) * ROWS]))
    return weights


STEPS = (two_passes, fused, weights_once, scaled_late)
"""The steps in order."""
