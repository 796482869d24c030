"""Kernels whose time the public tutorials and guides publish, written again from what the pages say they do."""

from __future__ import annotations

from typing import Any

from optimum_neuron.nki import isa as nisa, language

nl: Any = language

P, COLUMNS = 128, 512


def _store(tile, out):
    nisa.dma_copy(out, tile)


def _tile(source):
    tile = nl.ndarray(source.shape, source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, source)
    return tile


def _product(pairs, dtype, out):
    """Accumulate products of stationary and moving tiles, and store the sum."""
    total = nl.ndarray((P, COLUMNS), nl.float32, buffer=nl.psum)
    for left, right in pairs:
        nisa.nc_matmul(total, left, right)
    result = nl.ndarray((P, COLUMNS), dtype, buffer=nl.sbuf)
    nisa.tensor_copy(result, total)
    _store(result, out)


def _at(place, size):
    return slice(place * size, (place + 1) * size)


def _output(left_T, right):
    return nl.ndarray((left_T.shape[1], right.shape[1]), right.dtype, buffer=nl.shared_hbm)


def tiled(left_T, right):
    """Load both tiles of each product."""
    out = _output(left_T, right)
    for m in range(left_T.shape[1] // P):
        for n in range(right.shape[1] // COLUMNS):
            pairs = (
                (_tile(left_T[_at(k, P), _at(m, P)]), _tile(right[_at(k, P), _at(n, COLUMNS)]))
                for k in range(right.shape[0] // P)
            )
            _product(pairs, right.dtype, out[_at(m, P), _at(n, COLUMNS)])
    return out


def hoisted(left_T, right):
    """Load the stationary tiles of a row once."""
    out, depth = _output(left_T, right), right.shape[0] // P
    for m in range(left_T.shape[1] // P):
        lefts = [_tile(left_T[_at(k, P), _at(m, P)]) for k in range(depth)]
        for n in range(right.shape[1] // COLUMNS):
            rights = [_tile(right[_at(k, P), _at(n, COLUMNS)]) for k in range(depth)]
            _product(zip(lefts, rights, strict=True), right.dtype, out[_at(m, P), _at(n, COLUMNS)])
    return out


def blocked(left_T, right, rows=2, columns=2):
    """Load the tiles of a block of rows and of a block of columns once."""
    out, depth = _output(left_T, right), right.shape[0] // P
    for m in range(left_T.shape[1] // (P * rows)):
        lefts = [_tile(left_T[_at(k, P), _at(m, P * rows)]) for k in range(depth)]
        for n in range(right.shape[1] // (COLUMNS * columns)):
            rights = [_tile(right[_at(k, P), _at(n, COLUMNS * columns)]) for k in range(depth)]
            for row in range(rows):
                for column in range(columns):
                    pairs = [(lefts[k][:, _at(row, P)], rights[k][:, _at(column, COLUMNS)]) for k in range(depth)]
                    place = out[_at(m * rows + row, P), _at(n * columns + column, COLUMNS)]
                    _product(pairs, right.dtype, place)
    return out


def all_blocked(left_T, right, rows=16, columns=2, deep=8):
    """Keep sums of a block of columns in SBUF, and add products of blocks of the contraction to them."""
    out = _output(left_T, right)
    num_rows, width = left_T.shape[1] // P, COLUMNS * columns
    for n in range(right.shape[1] // width):
        sums = [nl.ndarray((P, width), nl.float32, buffer=nl.sbuf) for _ in range(num_rows)]
        for k in range(right.shape[0] // (P * deep)):
            rights = [_tile(right[_at(k * deep + one, P), _at(n, width)]) for one in range(deep)]
            for m in range(num_rows // rows):
                lefts = [_tile(left_T[_at(k * deep + one, P), _at(m, P * rows)]) for one in range(deep)]
                _add_block(sums, lefts, rights, m * rows, rows, columns, is_first=k == 0)
        for m, total in enumerate(sums):
            result = nl.ndarray((P, width), right.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(result, total)
            _store(result, out[_at(m, P), _at(n, width)])
    return out


def _add_block(sums, lefts, rights, first, rows, columns, *, is_first):
    for row in range(rows):
        for column in range(columns):
            total = nl.ndarray((P, COLUMNS), nl.float32, buffer=nl.psum)
            for left, right in zip(lefts, rights, strict=True):
                nisa.nc_matmul(total, left[:, _at(row, P)], right[:, _at(column, COLUMNS)])
            place = sums[first + row][:, _at(column, COLUMNS)]
            if is_first:
                nisa.tensor_copy(place, total)
            else:
                nisa.tensor_tensor(place, place, total, nl.add)


def mamba_by_state(delta, u, A, B, C):
    """Selective scan, states outside: tiles of channels are loaded for each state."""
    channels, length = delta.shape
    out = nl.ndarray(delta.shape, delta.dtype, buffer=nl.shared_hbm)
    ones = _ones()
    sums = [nl.zeros((P, length), nl.float32, buffer=nl.sbuf) for _ in range(channels // P)]
    for state in range(A.shape[1]):
        for place, total in enumerate(sums):
            rows = _at(place, P)
            one_delta, scaled = _tile(delta[rows]), nl.ndarray((P, length), nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(scaled, one_delta, _tile(u[rows]), nl.multiply)
            _scan(
                ones, total, one_delta, scaled, A[rows, state : state + 1], B[state : state + 1], C[state : state + 1]
            )
    for place, total in enumerate(sums):
        _store(total, out[_at(place, P)])
    return out


def mamba_by_channel(delta, u, A, B, C, columns=None):
    """Selective scan, channels outside: a tile of channels is loaded once, or once for each part of the sequence."""
    channels, length = delta.shape
    columns = columns or length
    out = nl.ndarray(delta.shape, delta.dtype, buffer=nl.shared_hbm)
    ones = _ones()
    for place in range(channels // P):
        rows, carried = _at(place, P), {}
        for part in range(length // columns):
            cols = _at(part, columns)
            one_delta, scaled = _tile(delta[rows, cols]), nl.ndarray((P, columns), nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(scaled, one_delta, _tile(u[rows, cols]), nl.multiply)
            total = nl.zeros((P, columns), nl.float32, buffer=nl.sbuf)
            for state in range(A.shape[1]):
                only = slice(state, state + 1)
                carried[state] = _scan(
                    ones, total, one_delta, scaled, A[rows, only], B[only, cols], C[only, cols], carried.get(state, 0.0)
                )
            _store(total, out[rows, cols])
    return out


def _scan(ones, total, delta, scaled, A, B, C, initial=0.0):
    """Add one state's part of a tile, and return the last element of its scan."""
    shape = delta.shape
    decay, term, scan, part = (nl.ndarray(shape, nl.float32, buffer=nl.sbuf) for _ in range(4))
    nisa.activation(decay, nl.exp, delta, scale=_tile(A))
    nisa.tensor_tensor(term, scaled, _broadcast(ones, B), nl.multiply)
    nisa.tensor_tensor_scan(scan, decay, term, initial, nl.multiply, nl.add)
    nisa.tensor_tensor(part, scan, _broadcast(ones, C), nl.multiply)
    nisa.tensor_tensor(total, total, part, nl.add)
    return scan[:, shape[1] - 1 :]


def _ones():
    ones = nl.ndarray((1, P), nl.float32, buffer=nl.sbuf)
    nisa.memset(ones, 1.0)
    return ones


def _broadcast(ones, row):
    """Return a row in all partitions of PSUM, by a product with ones."""
    tile = nl.ndarray((P, row.shape[1]), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(tile, ones, _tile(row))
    return tile


def dependent(x):
    """Activations that each need the one before."""
    tile, out = _tile(x), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for _ in range(20):
        nisa.activation(tile, nl.exp, tile)
    _store(tile, out)
    return out
