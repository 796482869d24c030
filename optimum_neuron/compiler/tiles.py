"""Arithmetic of tiles: cycles of a matmul on the systolic array, and the pieces in which DMA reads weights.

The array has 128 rows and 128 columns: a matmul of M x K by K x N takes ceil(K/128) x ceil(N/128) loads of a
stationary tile, each with M moving columns and at least 64 cycles (Neuron docs, NKI, Trainium/Inferentia2
architecture guide, tensor engine); either operand may be the stationary one.

    >>> product_cycles(1, 4096, 4096)  # one row: the weights move, the row stays
    65536
    >>> product_cycles(512, 4096, 4096) == 32 * 32 * 512
    True
"""

from __future__ import annotations

ARRAY = 128
"""Rows and columns of the systolic array."""
MIN_CYCLES = 64
"""Cycles of a matmul instruction with few moving columns (`hardware.CoreTiming.matmul_min_cycles`)."""
MAX_CHUNK_TILES = 16
"""Tiles that one DMA moves at most: 16 x 128 16-bit elements are 4 KiB, where DMA saturates."""
FEW_CHANNELS = 32
"""Below this many input channels, the taps of a convolution share the rows of the array."""


def tiles(size: int) -> int:
    """Number of tiles of an axis."""
    return -(-size // ARRAY)


def product_cycles(rows: int, inner: int, columns: int) -> int:
    """Cycles of one matmul of `rows` x `inner` by `inner` x `columns`."""
    columns_stay = tiles(columns) * max(rows, MIN_CYCLES)
    rows_stay = tiles(rows) * max(columns, MIN_CYCLES)
    return tiles(inner) * min(columns_stay, rows_stay)


def convolution_cycles(positions: int, channels_in: int, channels_out: int, taps: int, groups: int = 1) -> int:
    """Cycles of a convolution: one matmul for each tap, or a single one over all taps where channels are few.

    Args:
        positions: pixels of the result, all rows of the batch together.
    """
    if channels_in < FEW_CHANNELS:
        return groups * product_cycles(positions, channels_in * taps, channels_out)
    return groups * taps * product_cycles(positions, channels_in, channels_out)


def chunk_tiles(size: int) -> int:
    """Tiles of an axis that DMA moves as one: the largest divisor of their number, up to 16."""
    count = tiles(size)
    return max(divisor for divisor in range(1, MAX_CHUNK_TILES + 1) if count % divisor == 0)


def contiguous_bytes(inner: int, columns: int, element_bytes: float) -> float:
    """Bytes of one contiguous piece of a weight of `inner` x `columns`, as DMA finds it.

    A weight is walked along both axes, when it is read and when its product is the next one's operand: the axis that
    divides worse decides. A local width of 43 tiles, a prime, leaves pieces of a single tile.

    Example:
        ```python
        from optimum_neuron.compiler.tiles import contiguous_bytes

        assert contiguous_bytes(4096, 4096, 2) == 4096
        assert contiguous_bytes(4096, 43 * 128, 2) == 256
        ```
    """
    if inner % ARRAY or columns % ARRAY:
        return min(columns, MAX_CHUNK_TILES * ARRAY) * element_bytes
    return min(chunk_tiles(inner), chunk_tiles(columns)) * ARRAY * element_bytes
