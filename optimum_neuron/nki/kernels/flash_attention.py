"""Flash attention, forward: causal, with a running maximum and sum for each row of queries (Dao et al. 2022).

Query heads share key heads in groups, whose keys and values are loaded once. Only keys that a block of queries sees are
computed. Shape legend: N query heads, K key heads, D head width, S tokens.
"""

from __future__ import annotations

import math

from .. import isa as nisa, language as nl
from ..jit import jit
from ..tensor import NkiTensor

ROWS, KEYS = 128, 512
"""Queries of a block, and keys that it looks at in one matmul."""
LOWEST = -1e30
"""Score of a key that a query must not see."""


@jit
def flash_attention(
    q_NDS: NkiTensor, k_KDS: NkiTensor, v_KSD: NkiTensor, scale: float | None = None
) -> tuple[NkiTensor, NkiTensor]:
    """Return attention [N, S, D] and the logarithms of its sums [N, S, 1], which the gradient needs.

    Args:
        q_NDS: queries, transposed.
        k_KDS: keys, transposed.
        v_KSD: values; tokens are a multiple of 128.
        scale: Factor on scores; None for 1 / sqrt(D).
    """
    (num_heads, depth, length), num_keys = q_NDS.shape, k_KDS.shape[0]
    factor = 1 / math.sqrt(depth) if scale is None else scale
    out_NSD = nl.ndarray((num_heads, length, depth), v_KSD.dtype, buffer=nl.shared_hbm)
    sums_NS1 = nl.ndarray((num_heads, length, 1), nl.float32, buffer=nl.shared_hbm)
    for kv in nl.affine_range(num_keys):
        keys, values = nl.load(k_KDS[kv]), blocks_of(v_KSD[kv])
        for member in nl.affine_range(num_heads // num_keys):
            head = kv * (num_heads // num_keys) + member
            for first in range(0, length, ROWS):
                rows = nl.ds(first, ROWS)
                queries = nl.load(q_NDS[head][:, rows])
                _attend(queries, keys, values, first, factor, out_NSD[head][rows], sums_NS1[head][rows])
    return out_NSD, sums_NS1


def blocks_of(x_SD: NkiTensor) -> NkiTensor:
    """Load rows as [128, blocks, D]: partition p has row p of each block of 128."""
    length, depth = x_SD.shape
    tile = nl.ndarray((ROWS, length // ROWS, depth), x_SD.dtype)
    nisa.dma_copy(tile, x_SD.reshape((length // ROWS, ROWS, depth)).permute([1, 0, 2]))
    return tile


def _attend(
    queries: NkiTensor, keys: NkiTensor, values: NkiTensor, first: int, scale: float, out: NkiTensor, sums: NkiTensor
) -> None:
    """Compute one block of queries."""
    highest, total = nl.full((ROWS, 1), LOWEST, nl.float32), nl.zeros((ROWS, 1), nl.float32)
    mixed = nl.zeros((ROWS, values.shape[2]), nl.float32)
    whole = first // KEYS * KEYS
    for start in nl.sequential_range(0, whole, KEYS):
        scores = nl.ndarray((ROWS, KEYS), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(scores, queries, keys[:, nl.ds(start, KEYS)])
        _add_block(scores, values, start // ROWS, scale, (highest, total, mixed))
    width = first + ROWS - whole
    scores = nl.ndarray((ROWS, width), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(scores, queries, keys[:, nl.ds(whole, width)])
    seen = nl.copy(scores)
    nisa.affine_select(seen, [[-1, width]], 1, seen, LOWEST, nl.greater_equal, first - whole)
    _add_block(seen, values, whole // ROWS, scale, (highest, total, mixed))
    nisa.activation(sums_of := nl.ndarray((ROWS, 1), nl.float32), nl.log, total)
    nisa.scalar_tensor_tensor(sums_of, highest, nl.multiply, scale, nl.add, sums_of)
    nisa.dma_copy(sums, sums_of)
    nisa.reciprocal(total, total)
    result = nl.ndarray(mixed.shape, out.dtype)
    nisa.tensor_scalar(result, mixed, nl.multiply, total)
    nisa.dma_copy(out, result)


def _add_block(
    scores: NkiTensor, values: NkiTensor, block: int, scale: float, running: tuple[NkiTensor, NkiTensor, NkiTensor]
) -> None:
    """Add the keys of some blocks to the running maximum, sum, and mix."""
    highest, total, mixed = running
    peak, shift, rescale, added = (nl.ndarray((ROWS, 1), nl.float32) for _ in range(4))
    nisa.tensor_reduce(peak, nl.maximum, scores, 1)
    nisa.tensor_tensor(peak, peak, highest, nl.maximum)
    nisa.tensor_scalar(shift, peak, nl.multiply, -scale)
    nisa.activation(rescale, nl.exp, highest, bias=shift, scale=scale)
    powers = nl.ndarray(scores.shape, values.dtype)
    nisa.activation_reduce(powers, nl.exp, scores, nl.add, added, bias=shift, scale=scale)
    nisa.scalar_tensor_tensor(total, total, nl.multiply, rescale, nl.add, added)
    update = nl.ndarray(mixed.shape, nl.float32, buffer=nl.psum)
    for number in range(scores.shape[1] // ROWS):
        weights = nl.transpose(powers[:, nl.ds(number * ROWS, ROWS)])
        nisa.nc_matmul(update, weights, values[:, block + number, :])
    nisa.scalar_tensor_tensor(mixed, mixed, nl.multiply, rescale, nl.add, update)
    nisa.tensor_copy(highest, peak)
