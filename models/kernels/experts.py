"""The gather of a mixture of experts: each expert's tokens, found by index, times the expert's weight.

`index` has the tokens of each expert, [experts, 128] int32; the result is [experts, 128, columns]. Three steps, from
all tokens to those of the expert, loaded ahead.
"""

from __future__ import annotations

from optimum_neuron.nki import NkiTensor, isa as nisa, jit, language as nl

ROWS, COLUMNS = 128, 512


def _product(out: NkiTensor, tokens: NkiTensor, weights: list[NkiTensor]) -> None:
    """Store the product of tokens with the rows of a weight."""
    parts = []
    for number in range(len(weights)):
        total = nl.ndarray((ROWS, ROWS), tokens.dtype, buffer=nl.psum)
        part = nl.ndarray((ROWS, ROWS), tokens.dtype)
        nisa.nc_transpose(total, tokens[:, number * ROWS : (number + 1) * ROWS])
        nisa.tensor_copy(part, total)
        parts.append(part)
    result = nl.ndarray(out.shape, out.dtype)
    for start in range(0, out.shape[1], COLUMNS):
        total = nl.ndarray((ROWS, COLUMNS), nl.float32, buffer=nl.psum)
        for part, rows in zip(parts, weights, strict=True):
            nisa.nc_matmul(total, part, rows[:, start : start + COLUMNS])
        nisa.tensor_copy(result[:, start : start + COLUMNS], total)
    nisa.dma_copy(out, result)


def _weights(weight: NkiTensor) -> list[NkiTensor]:
    return [nl.load(weight[start : start + ROWS]) for start in range(0, weight.shape[0], ROWS)]


def _output(index: NkiTensor, x: NkiTensor, weight: NkiTensor) -> NkiTensor:
    return nl.ndarray((index.shape[0], ROWS, weight.shape[2]), x.dtype, buffer=nl.shared_hbm)


def _gathered(x: NkiTensor, index: NkiTensor, expert: int) -> NkiTensor:
    """Return the rows of an expert, one in each partition."""
    places = nl.load(index[expert : expert + 1].reshape((ROWS, 1)))
    tokens, width = nl.ndarray((ROWS, x.shape[1]), x.dtype), x.shape[1]
    nisa.dma_copy(tokens, x.ap([[width, ROWS], [1, width]], vector_offset=places, indirect_dim=0))
    return tokens


@jit
def all_tokens(x: NkiTensor, index: NkiTensor, weight: NkiTensor) -> NkiTensor:
    """Step 1: each expert multiplies all tokens, and its own results are gathered from HBM."""
    out = _output(index, x, weight)
    between = nl.ndarray((x.shape[0], weight.shape[2]), x.dtype, buffer=nl.hbm)
    for expert in range(index.shape[0]):
        weights = _weights(weight[expert])
        for start in range(0, x.shape[0], ROWS):
            _product(between[start : start + ROWS], nl.load(x[start : start + ROWS]), weights)
        nisa.dma_copy(out[expert], _gathered(between, index, expert))
    return out


@jit
def indirect(x: NkiTensor, index: NkiTensor, weight: NkiTensor) -> NkiTensor:
    """Step 2: one transfer gathers the rows of all partitions by their indices, and only they are multiplied."""
    out = _output(index, x, weight)
    for expert in range(index.shape[0]):
        _product(out[expert], _gathered(x, index, expert), _weights(weight[expert]))
    return out


@jit
def ahead(x: NkiTensor, index: NkiTensor, weight: NkiTensor) -> NkiTensor:
    """Step 3: the rows and weights of the next expert are loaded before this one's product."""
    out, experts = _output(index, x, weight), index.shape[0]
    tokens, weights = _gathered(x, index, 0), _weights(weight[0])
    for expert in range(experts):
        now = tokens, weights
        if expert + 1 < experts:
            tokens, weights = _gathered(x, index, expert + 1), _weights(weight[expert + 1])
        _product(out[expert], *now)
    return out


STEPS = (all_tokens, indirect, ahead)
"""The steps in order."""
