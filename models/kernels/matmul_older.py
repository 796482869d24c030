"""One matrix product in the older API, tiled three ways; `matmul.py` has it in the newer one.

All compute `lhs_T.T @ rhs`; sizes are multiples of 128 rows and 512 columns.
"""

from __future__ import annotations

from typing import Any

from optimum_neuron.nki.legacy import OlderTensor, jit, language

nl: Any = language
"""Its names are made at run time."""

ROWS, COLUMNS = 128, 512


def _output(lhs_T: OlderTensor, rhs: OlderTensor) -> OlderTensor:
    return nl.ndarray((lhs_T.shape[1], rhs.shape[1]), dtype=lhs_T.dtype, buffer=nl.shared_hbm)


@jit
def tiles(lhs_T: OlderTensor, rhs: OlderTensor) -> OlderTensor:
    """Both tiles of each product are loaded for it."""
    out = _output(lhs_T, rhs)
    i_row, i_column = nl.mgrid[0:ROWS, 0:ROWS], nl.mgrid[0:ROWS, 0:COLUMNS]
    for m in nl.affine_range(lhs_T.shape[1] // ROWS):
        for n in nl.affine_range(rhs.shape[1] // COLUMNS):
            total = nl.zeros((ROWS, COLUMNS), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(rhs.shape[0] // ROWS):
                left = nl.load(lhs_T[k * ROWS + i_row.p, m * ROWS + i_row.x])
                right = nl.load(rhs[k * ROWS + i_column.p, n * COLUMNS + i_column.x])
                total += nl.matmul(left, right, transpose_x=True)
            nl.store(out[m * ROWS + i_column.p, n * COLUMNS + i_column.x], value=nl.copy(total, dtype=out.dtype))
    return out


@jit
def rows_hoisted(lhs_T: OlderTensor, rhs: OlderTensor) -> OlderTensor:
    """The stationary tiles of 128 rows are loaded once."""
    out, depth = _output(lhs_T, rhs), rhs.shape[0] // ROWS
    i_row, i_column = nl.mgrid[0:ROWS, 0:ROWS], nl.mgrid[0:ROWS, 0:COLUMNS]
    for m in nl.affine_range(lhs_T.shape[1] // ROWS):
        lefts = nl.ndarray((depth, nl.par_dim(ROWS), ROWS), dtype=lhs_T.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(depth):
            lefts[k] = nl.load(lhs_T[k * ROWS + i_row.p, m * ROWS + i_row.x])
        for n in nl.affine_range(rhs.shape[1] // COLUMNS):
            total = nl.zeros((ROWS, COLUMNS), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(depth):
                right = nl.load(rhs[k * ROWS + i_column.p, n * COLUMNS + i_column.x])
                total += nl.matmul(lefts[k], right, transpose_x=True)
            nl.store(out[m * ROWS + i_column.p, n * COLUMNS + i_column.x], value=nl.copy(total, dtype=out.dtype))
    return out


@jit
def all_loaded(lhs_T: OlderTensor, rhs: OlderTensor) -> OlderTensor:
    """Whole rows of both matrices are loaded once, and whole rows are stored."""
    out, depth, width = _output(lhs_T, rhs), rhs.shape[0] // ROWS, rhs.shape[1]
    lefts = nl.ndarray((depth, nl.par_dim(ROWS), lhs_T.shape[1]), dtype=lhs_T.dtype, buffer=nl.sbuf)
    rights = nl.ndarray((depth, nl.par_dim(ROWS), width), dtype=rhs.dtype, buffer=nl.sbuf)
    for k in nl.affine_range(depth):
        lefts[k] = nl.load(lhs_T[nl.ds(k * ROWS, ROWS), :])
        rights[k] = nl.load(rhs[nl.ds(k * ROWS, ROWS), :])
    for m in nl.affine_range(lhs_T.shape[1] // ROWS):
        result = nl.ndarray((ROWS, width), dtype=out.dtype, buffer=nl.sbuf)
        for n in nl.affine_range(width // COLUMNS):
            total = nl.zeros((ROWS, COLUMNS), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(depth):
                left, right = lefts[k][:, nl.ds(m * ROWS, ROWS)], rights[k][:, nl.ds(n * COLUMNS, COLUMNS)]
                total += nl.matmul(left, right, transpose_x=True)
            result[:, nl.ds(n * COLUMNS, COLUMNS)] = nl.copy(total, dtype=out.dtype)
        nl.store(out[nl.ds(m * ROWS, ROWS), :], value=result)
    return out


WAYS = (tiles, rows_hoisted, all_loaded)
"""The three, from slow to fast."""
