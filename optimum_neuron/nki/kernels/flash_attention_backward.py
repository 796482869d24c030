"""Flash attention, backward: gradients of queries, keys and values, with scores computed again block by block.

For queries i and keys j with P = exp(scale * q_i k_j - log sum_i) and D_i = sum(grad_i * out_i):

    dV_j = sum_i P grad_i    dS = P * (grad_i v_j - D_i)    dK_j = scale * sum_i dS q_i    dQ_i = scale * sum_j dS k_j

Source: Dao et al. 2022, FlashAttention, algorithm 4. Shape legend: N query heads, K key heads, D head width, S tokens.
"""

from __future__ import annotations

import dataclasses
import math

from .. import isa as nisa
from ..jit import jit
from ..tensor import NkiTensor
from .flash_attention import ROWS, blocks_of, nl


@dataclasses.dataclass(frozen=True)
class _Head:
    """Tiles of one query head: transposed ones are [D, S], others [128, blocks, D]."""

    queries_T: NkiTensor
    queries: NkiTensor
    grads_T: NkiTensor
    grads: NkiTensor
    shifts: NkiTensor
    """Negative logarithms of sums [128, blocks]."""
    deltas: NkiTensor
    """Sums of gradients times results [128, blocks]."""
    dq: NkiTensor


@dataclasses.dataclass(frozen=True)
class _Keys:
    """Tiles of one key head."""

    keys_T: NkiTensor
    keys: NkiTensor
    values_T: NkiTensor
    dk: NkiTensor
    dv: NkiTensor


@jit
def flash_attention_backward(
    q_NDS: NkiTensor,
    k_KDS: NkiTensor,
    v_KDS: NkiTensor,
    out_NSD: NkiTensor,
    sums_NS1: NkiTensor,
    grad_NSD: NkiTensor,
    rows: tuple[NkiTensor, NkiTensor, NkiTensor],
    scale: float | None = None,
) -> tuple[NkiTensor, NkiTensor, NkiTensor]:
    """Return the gradients of queries [N, S, D], keys and values [K, S, D].

    Args:
        q_NDS: queries, transposed.
        k_KDS: keys, transposed.
        v_KDS: values, transposed.
        out_NSD: what the forward returned.
        sums_NS1: its logarithms of sums.
        grad_NSD: gradient of the result.
        rows: queries [N, S, D] and keys [K, S, D], and the gradient transposed [N, D, S].
        scale: Factor on scores; None for 1 / sqrt(D).
    """
    (num_heads, depth, _), num_keys = q_NDS.shape, k_KDS.shape[0]
    q_NSD, k_KSD, grad_NDS = rows
    factor = 1 / math.sqrt(depth) if scale is None else scale
    dq_NSD = nl.ndarray(q_NSD.shape, q_NDS.dtype, buffer=nl.shared_hbm)
    dk_KSD, dv_KSD = (nl.ndarray(k_KSD.shape, k_KDS.dtype, buffer=nl.shared_hbm) for _ in range(2))
    for kv in nl.affine_range(num_keys):
        keys = _load_keys(k_KDS[kv], k_KSD[kv], v_KDS[kv])
        for member in nl.affine_range(num_heads // num_keys):
            head = kv * (num_heads // num_keys) + member
            tiles = _load_head(q_NDS[head], q_NSD[head], grad_NDS[head], grad_NSD[head], out_NSD[head], sums_NS1[head])
            for block in range(tiles.queries.shape[1]):
                _add_keys(tiles, keys, block, factor)
            _store(dq_NSD[head], tiles.dq, factor)
        _store(dk_KSD[kv], keys.dk, factor)
        _store(dv_KSD[kv], keys.dv, 1.0)
    return dq_NSD, dk_KSD, dv_KSD


def _load_keys(k_DS: NkiTensor, k_SD: NkiTensor, v_DS: NkiTensor) -> _Keys:
    rows = blocks_of(k_SD)
    dk, dv = (nl.zeros(rows.shape, nl.float32) for _ in range(2))
    return _Keys(nl.load(k_DS), rows, nl.load(v_DS), dk, dv)


def _load_head(
    q_DS: NkiTensor, q_SD: NkiTensor, grad_DS: NkiTensor, grad_SD: NkiTensor, out_SD: NkiTensor, sums_S1: NkiTensor
) -> _Head:
    queries, grads, results = blocks_of(q_SD), blocks_of(grad_SD), blocks_of(out_SD)
    sums, products = blocks_of(sums_S1), nl.ndarray(grads.shape, nl.float32)
    num_blocks = queries.shape[1]
    shifts, deltas = (nl.ndarray((ROWS, num_blocks), nl.float32) for _ in range(2))
    nisa.tensor_scalar(shifts, sums.reshape((ROWS, num_blocks)), nl.multiply, -1.0)
    nisa.tensor_tensor(products, grads, results, nl.multiply)
    nisa.tensor_reduce(deltas, nl.add, products, 2)
    return _Head(nl.load(q_DS), queries, nl.load(grad_DS), grads, shifts, deltas, nl.zeros(queries.shape, nl.float32))


def _add_keys(head: _Head, keys: _Keys, block: int, scale: float) -> None:
    """Add what one block of keys contributes: the queries of its own block, then all later ones."""
    depth = keys.keys.shape[2]
    dk, dv = (nl.ndarray((ROWS, depth), nl.float32, buffer=nl.psum) for _ in range(2))
    _add_pair(head, keys, block, block, scale, dk, dv, is_diagonal=True)
    for later in nl.sequential_range(block + 1, head.queries.shape[1]):
        _add_pair(head, keys, later, block, scale, dk, dv, is_diagonal=False)
    for total, part in ((keys.dk, dk), (keys.dv, dv)):
        nisa.tensor_tensor(total[:, block, :], total[:, block, :], part, nl.add)


def _add_pair(
    head: _Head, keys: _Keys, query: int, key: int, scale: float, dk: NkiTensor, dv: NkiTensor, *, is_diagonal: bool
) -> None:
    """Add what a block of queries and a block of keys contribute."""
    queries, columns = nl.ds(query * ROWS, ROWS), nl.ds(key * ROWS, ROWS)
    scores, products = (nl.ndarray((ROWS, ROWS), nl.float32, buffer=nl.psum) for _ in range(2))
    nisa.nc_matmul(scores, head.queries_T[:, queries], keys.keys_T[:, columns])
    weights = nl.ndarray((ROWS, ROWS), nl.float32)
    nisa.activation(weights, nl.exp, scores, bias=head.shifts[:, nl.ds(query, 1)], scale=scale)
    if is_diagonal:
        nisa.affine_select(weights, [[-1, ROWS]], 1, weights, 0.0, nl.greater_equal)
    nisa.nc_matmul(products, head.grads_T[:, queries], keys.values_T[:, columns])
    slopes = nl.ndarray((ROWS, ROWS), head.queries.dtype)
    delta = head.deltas[:, nl.ds(query, 1)]
    nisa.scalar_tensor_tensor(slopes, products, nl.subtract, delta, nl.multiply, weights)
    narrow = weights if weights.dtype == head.grads.dtype else nl.copy(weights, head.grads.dtype)
    nisa.nc_matmul(dv, narrow, head.grads[:, query, :])
    nisa.nc_matmul(dk, slopes, head.queries[:, query, :])
    dq = nl.ndarray((ROWS, dk.shape[1]), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dq, nl.transpose(slopes), keys.keys[:, key, :])
    nisa.tensor_tensor(head.dq[:, query, :], head.dq[:, query, :], dq, nl.add)


def _store(x_SD: NkiTensor, blocks: NkiTensor, factor: float) -> None:
    """Store [128, blocks, D] as rows, times a factor."""
    result = nl.ndarray(blocks.shape, x_SD.dtype)
    nisa.tensor_scalar(result, blocks, nl.multiply, factor)
    length, depth = x_SD.shape
    nisa.dma_copy(x_SD.reshape((length // ROWS, ROWS, depth)).permute([1, 0, 2]), result)
