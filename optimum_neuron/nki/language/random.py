"""Random numbers as functions on tiles."""

from __future__ import annotations

from collections.abc import Sequence

from .. import instructions as ins
from ..dtypes import Dtype
from ..memory import Buffer
from ..operators import OPERATORS
from ..tensor import NkiTensor
from .creation import ndarray
from .data import copy


def rand(shape: Sequence[int], dtype: Dtype, buffer: Buffer = Buffer.sbuf, name: str = "") -> NkiTensor:
    """Make a tensor of uniform numbers from 0 to 1, of 24 random bits each."""
    result = ndarray(shape, dtype, buffer, name)
    bits = ndarray(shape, "uint32")
    ins.rng(bits)
    ins.tensor_scalar(bits, bits, OPERATORS["right_shift"], 8)
    tile = result if buffer.is_on_chip else ndarray(shape, dtype)
    ins.tensor_scalar(tile, bits, OPERATORS["multiply"], 2.0**-24)
    if not buffer.is_on_chip:
        ins.dma_copy(result, tile)
    return result


def random_seed(seed: NkiTensor) -> None:
    """Seed the random numbers with a tile of one element."""
    ins.set_rng_seed(seed)


def dropout(x: NkiTensor, rate: object, dtype: Dtype | None = None) -> NkiTensor:
    """Replace elements by 0 with a probability, a number or a vector; the others are not scaled."""
    result = ndarray(x.shape, x.dtype)
    ins.dropout(result, x, rate)
    return result if dtype is None else copy(result, dtype)


__all__ = ["dropout", "rand", "random_seed"]
