"""Operators as functions on tiles: `nl.add(x, y)` computes a new tile in SBUF, with the instruction that has it."""

from __future__ import annotations

import functools
from typing import Any

import torch

from .. import dtypes, instructions as ins
from ..core import Rule, refuse
from ..dtypes import Dtype, dtype_name
from ..memory import Buffer
from ..operators import Operator
from ..tensor import NkiTensor
from .creation import copy, ndarray

COMPARISONS = frozenset(
    {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}
    | {"logical_and", "logical_or", "logical_xor", "logical_not"}
)
"""Operators that yield 0 or 1."""


def apply(operator: Operator, *operands: object, **options: object) -> Any:
    """Compute an operator of tiles and numbers into a new tile.

    Raises:
        KernelError: no operand is a tile, or sizes do not match.
    """
    bound = operator.__signature__.bind(*operands, **options)
    bound.apply_defaults()
    x, dtype = bound.arguments["x"], bound.arguments["dtype"]
    if operator.arity == 1:
        return _unary(operator, _require_tile(operator, x), dtype)
    return _binary(operator, x, bound.arguments["y"], dtype)


Operator.on_tiles = staticmethod(apply)


def _require_tile(operator: Operator, value: object) -> NkiTensor:
    if not isinstance(value, NkiTensor) or value.buffer.is_hbm:
        refuse(Rule.TILE_OPERAND, instruction=operator.name, value=value)
    return value


def _unary(operator: Operator, x: NkiTensor, dtype: Dtype) -> NkiTensor:
    result = ndarray(x.shape, x.dtype if dtype is None else dtype)
    if operator.is_activation:
        ins.activation(result, operator, x)
    else:
        ins.tensor_scalar(result, x, operator, 0)
    return result


def promoted(*values: object) -> str:
    """Return the dtype that holds the elements of all tiles among values."""
    names: list[str] = [value.dtype for value in values if isinstance(value, NkiTensor)]
    return functools.reduce(dtypes.promoted, names)


def _binary(operator: Operator, x: object, y: object, dtype: Dtype) -> NkiTensor:
    if not isinstance(x, NkiTensor) and not isinstance(y, NkiTensor):
        _require_tile(operator, x)
    default = "uint8" if operator.name in COMPARISONS else promoted(x, y)
    kind = default if dtype is None else "uint8" if dtype is bool else dtype_name(dtype)
    tiles = [_require_tile(operator, value) for value in (x, y) if isinstance(value, NkiTensor)]
    shape = broadcast_shape(operator.name, *tiles)
    result = ndarray(shape, kind)
    if len(tiles) == 1:
        number, is_left = (y, False) if isinstance(x, NkiTensor) else (x, True)
        ins.tensor_scalar(result, tiles[0], operator, number, reverse0=is_left)
        return result
    first, second = (tile if tile.shape == shape else expanded(tile, shape) for tile in tiles)
    if first.buffer is second.buffer is Buffer.psum:
        second = copy(second)
    if second.elements_per_partition > 1 and tiles[1].elements_per_partition == 1 and not operator.is_bitwise:
        ins.tensor_scalar(result, first, operator, column(tiles[1], shape[0]))
    else:
        ins.tensor_tensor(result, first, second, operator)
    return result


def broadcast_shape(opcode: str, *tiles: NkiTensor) -> tuple[int, ...]:
    """Return the shape that tiles broadcast to; a tile of fewer dimensions keeps its partitions first."""
    ndim = max(tile.ndim for tile in tiles)
    shapes = [(*tile.shape[:1], *(1,) * (ndim - tile.ndim), *tile.shape[1:]) for tile in tiles]
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        refuse(Rule.BROADCAST, instruction=opcode, shapes=" and ".join(str(tile.shape) for tile in tiles))


def expanded(tile: NkiTensor, shape: tuple[int, ...]) -> NkiTensor:
    """Return a tile as a larger shape, by repeating dimensions of size 1 without copying."""
    data = tile.data
    while data.dim() < len(shape):
        data = data.unsqueeze(1)
    return type(tile)(tile.storage, data.expand(shape))


def column(tile: NkiTensor, partitions: int) -> NkiTensor:
    """Return a tile of one element for each partition as a vector of float32."""
    return type(tile)(tile.storage, tile.data.reshape(-1, 1).expand(partitions, 1))
