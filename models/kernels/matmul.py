"""One matrix product in five steps, from naive to fast: what each changes is in its docstring.

All compute `lhs_T.T @ rhs`; sizes are multiples of 512. The simulated times are in README.md.
"""

from __future__ import annotations

from optimum_neuron.nki import NkiTensor, isa as nisa, jit, language as nl

ROWS, COLUMNS = 128, 512
"""Rows of the array, and moving columns that fill a bank of PSUM."""
BANKS = 8
"""Banks of PSUM."""


def tile(matrix: NkiTensor, row: int, column: int, width: int) -> NkiTensor:
    """Return 128 rows and some columns of a matrix, by their numbers."""
    return matrix[row * ROWS : (row + 1) * ROWS, column * width : (column + 1) * width]


def multiply(out: NkiTensor, lefts: list[NkiTensor], rights: list[NkiTensor]) -> None:
    """Add the products of tiles in PSUM, and store the sum."""
    total = nl.ndarray(out.shape, nl.float32, buffer=nl.psum)
    for left, right in zip(lefts, rights, strict=True):
        nisa.nc_matmul(total, left, right)
    result = nl.ndarray(out.shape, out.dtype)
    nisa.tensor_copy(result, total)
    nisa.dma_copy(out, result)


@jit
def naive(lhs_T: NkiTensor, rhs: NkiTensor) -> NkiTensor:
    """Step 1: square tiles, each loaded for each product."""
    (depth, height), width = lhs_T.shape, rhs.shape[1]
    out = nl.ndarray((height, width), lhs_T.dtype, buffer=nl.shared_hbm)
    for m in range(height // ROWS):
        for n in range(width // ROWS):
            steps = range(depth // ROWS)
            lefts = [nl.load(tile(lhs_T, k, m, ROWS)) for k in steps]
            multiply(tile(out, m, n, ROWS), lefts, [nl.load(tile(rhs, k, n, ROWS)) for k in steps])
    return out


@jit
def wide(lhs_T: NkiTensor, rhs: NkiTensor) -> NkiTensor:
    """Step 2: 512 moving columns, so each stationary tile serves four times as much."""
    (depth, height), width = lhs_T.shape, rhs.shape[1]
    out = nl.ndarray((height, width), lhs_T.dtype, buffer=nl.shared_hbm)
    for m in range(height // ROWS):
        for n in range(width // COLUMNS):
            steps = range(depth // ROWS)
            lefts = [nl.load(tile(lhs_T, k, m, ROWS)) for k in steps]
            multiply(tile(out, m, n, COLUMNS), lefts, [nl.load(tile(rhs, k, n, COLUMNS)) for k in steps])
    return out


@jit
def reused(lhs_T: NkiTensor, rhs: NkiTensor) -> NkiTensor:
    """Step 3: the tiles of 128 rows of the result are loaded once, and serve all its columns."""
    (depth, height), width = lhs_T.shape, rhs.shape[1]
    out = nl.ndarray((height, width), lhs_T.dtype, buffer=nl.shared_hbm)
    for m in range(height // ROWS):
        lefts = [nl.load(tile(lhs_T, k, m, ROWS)) for k in range(depth // ROWS)]
        for n in range(width // COLUMNS):
            multiply(tile(out, m, n, COLUMNS), lefts, [nl.load(tile(rhs, k, n, COLUMNS)) for k in range(depth // ROWS)])
    return out


@jit
def loaded_once(lhs_T: NkiTensor, rhs: NkiTensor) -> NkiTensor:
    """Step 4: the right matrix stays in SBUF, so each element of both is loaded once."""
    (depth, height), width = lhs_T.shape, rhs.shape[1]
    out = nl.ndarray((height, width), lhs_T.dtype, buffer=nl.shared_hbm)
    steps, columns = range(depth // ROWS), range(width // COLUMNS)
    rights = [[nl.load(tile(rhs, k, n, COLUMNS)) for k in steps] for n in columns]
    for m in range(height // ROWS):
        lefts = [nl.load(tile(lhs_T, k, m, ROWS)) for k in steps]
        for n in columns:
            multiply(tile(out, m, n, COLUMNS), lefts, rights[n])
    return out


@jit
def whole_rows(lhs_T: NkiTensor, rhs: NkiTensor) -> NkiTensor:
    """Step 5: whole rows are loaded, at the full rate of DMA; eight banks of PSUM take products as they arrive."""
    (depth, height), width = lhs_T.shape, rhs.shape[1]
    out, num_columns = nl.ndarray((height, width), lhs_T.dtype, buffer=nl.shared_hbm), width // COLUMNS
    pairs = [(nl.load(tile(lhs_T, k, 0, height)), nl.load(tile(rhs, k, 0, width))) for k in range(depth // ROWS)]
    together = max(1, BANKS // num_columns)
    for first in range(0, height // ROWS, together):
        rows = range(first, min(first + together, height // ROWS))
        totals = [[nl.ndarray((ROWS, COLUMNS), nl.float32, buffer=nl.psum) for _ in range(num_columns)] for _ in rows]
        for left, right in pairs:
            for m, sums in zip(rows, totals, strict=True):
                for n, total in enumerate(sums):
                    nisa.nc_matmul(total, left[:, nl.ds(m * ROWS, ROWS)], right[:, nl.ds(n * COLUMNS, COLUMNS)])
        for m, sums in zip(rows, totals, strict=True):
            result = nl.ndarray((ROWS, width), out.dtype)
            for n, total in enumerate(sums):
                nisa.tensor_copy(result[:, nl.ds(n * COLUMNS, COLUMNS)], total)
            nisa.dma_copy(tile(out, m, 0, width), result)
    return out


STEPS = (naive, wide, reused, loaded_once, whole_rows)
"""The steps in order."""
