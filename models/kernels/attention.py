"""Flash attention of one head, forward: causal, with a running maximum and sum for each row of queries."""

from __future__ import annotations

import math

from optimum_neuron.nki import NkiTensor, isa as nisa, jit, language as nl

ROWS, KEYS = 128, 512
"""Queries of a block, and keys that it looks at in one matmul."""
LOWEST = -1e30
"""Score of a key that a query must not see."""


@jit
def flash_attention(q_DS: NkiTensor, k_DS: NkiTensor, v_SD: NkiTensor) -> NkiTensor:
    """Attend: queries and keys are [depth, tokens], values and the result [tokens, depth], tokens a multiple of 512."""
    depth, length = q_DS.shape
    out_SD = nl.ndarray(v_SD.shape, v_SD.dtype, buffer=nl.shared_hbm)
    queries, keys = nl.load(q_DS), nl.load(k_DS)
    values = [nl.load(v_SD[start : start + ROWS]) for start in range(0, length, ROWS)]
    for first in range(0, length, ROWS):
        highest, total = nl.full((ROWS, 1), LOWEST, nl.float32), nl.zeros((ROWS, 1), nl.float32)
        mixed = nl.zeros((ROWS, depth), nl.float32)
        for start in range(0, first + ROWS, KEYS):
            scores = nl.ndarray((ROWS, KEYS), nl.float32, buffer=nl.psum)
            nisa.nc_matmul(scores, queries[:, nl.ds(first, ROWS)], keys[:, nl.ds(start, KEYS)])
            weights, peak = _weights(scores, highest, first - start, 1 / math.sqrt(depth))
            rescale, weight_sum = nl.ndarray((ROWS, 1), nl.float32), nl.ndarray((ROWS, 1), nl.float32)
            nisa.tensor_tensor(rescale, highest, peak, nl.subtract)
            nisa.activation(rescale, nl.exp, rescale)
            powers = nl.ndarray((ROWS, KEYS), v_SD.dtype)
            nisa.activation_reduce(powers, nl.exp, weights, nl.add, weight_sum, bias=nl.negative(peak))
            nisa.scalar_tensor_tensor(total, total, nl.multiply, rescale, nl.add, weight_sum)
            update = _mix(powers, values[start // ROWS : (start + KEYS) // ROWS], first + ROWS - start)
            nisa.scalar_tensor_tensor(mixed, mixed, nl.multiply, rescale, nl.add, update)
            highest = peak
        nisa.reciprocal(total, total)
        nisa.tensor_scalar(mixed, mixed, nl.multiply, total)
        nl.store(out_SD[first : first + ROWS], mixed)
    return out_SD


def _weights(scores: NkiTensor, highest: NkiTensor, ahead: int, scale: float) -> tuple[NkiTensor, NkiTensor]:
    """Scale scores, hide later keys, and return them with the maximum so far; queries are `ahead` of the keys."""
    weights, peak = nl.ndarray(scores.shape, nl.float32), nl.ndarray((ROWS, 1), nl.float32)
    nisa.tensor_scalar(weights, scores, nl.multiply, scale)
    if ahead < KEYS:
        nisa.affine_select(weights, [[-1, KEYS]], 1, weights, LOWEST, nl.greater_equal, ahead)
    nisa.tensor_reduce(peak, nl.maximum, weights, 1)
    nisa.tensor_tensor(peak, peak, highest, nl.maximum)
    return weights, peak


def _mix(powers: NkiTensor, values: list[NkiTensor], visible: int) -> NkiTensor:
    """Add the values of keys that are visible, by their weights, in PSUM."""
    update = nl.ndarray((ROWS, values[0].shape[1]), nl.float32, buffer=nl.psum)
    for number, value in enumerate(values):
        if number * ROWS < visible:
            nisa.nc_matmul(update, nl.transpose(powers[:, nl.ds(number * ROWS, ROWS)]), value)
    return update
